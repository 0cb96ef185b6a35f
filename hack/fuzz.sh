#!/usr/bin/env bash
# Fuzzes the reader of snapshots: hack/fuzz.sh [SECONDS]. Installs cargo-fuzz, if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
# The stable compiler will do: sanitizers find little where unsafe code is forbidden.
export RUSTC_BOOTSTRAP=1
cargo fuzz run --fuzz-dir . --sanitizer none inspect -- -max_total_time="${1:-600}" -max_len=131072 -rss_limit_mb=1024 -print_final_stats=1
