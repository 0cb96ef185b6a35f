#!/usr/bin/env bash
# Both programs as they are shipped, into target/release.
set -euo pipefail
cd "$(dirname "$0")/.."
# No tables to unwind with, since a panic ends the program; and no paths of this machine.
export RUSTFLAGS="-C force-unwind-tables=no --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/src"
exec "${CARGO:-cargo}" build --locked --release --package etcd-operator --package nginx-operator --bins
