#!/usr/bin/env bash
# Runs tests on labs of their own, whose names begin with $LAB_TEST_NAME, and takes the labs down at the end, however that is.
set -uo pipefail
cd "$(dirname "$0")/.."
: "${LAB_TEST_NAME:?names the labs}"
. hack/sweep.sh
trap sweep EXIT
"$@"
