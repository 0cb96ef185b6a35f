#!/usr/bin/env bash
# Fuzzes what reads foreign bytes: hack/fuzz.sh [SECONDS [TARGET…]], so long each; without a target, all in fuzz/fuzz_targets.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
. ../hack/need.sh
# libFuzzer is C++.
need c++ g++
seconds=${1:-600}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
  for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
# What cargo-fuzz does, which need not be installed for that. The stable compiler will do: sanitizers find little where
# unsafe code is forbidden.
host=$(rustc -vV | sed -n 's/^host: //p')
# A build directory of its own: nobody waits for this build.
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$PWD/../target/fuzz CARGO_BUILD_BUILD_DIR={cargo-cache-home}/etcd-operator-build/fuzz
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Cllvm-args=-sanitizer-coverage-stack-depth -Cdebug-assertions"
features=()
for target in "${targets[@]}"; do
  if grep -qE 'api::|etcd_operator::' "fuzz_targets/$target.rs"; then features=(--features kubernetes); fi
done
cargo build -q --release "${features[@]}" --target "$host" "${targets[@]/#/--bin=}"
for target in "${targets[@]}"; do
  echo "fuzzing $target for $seconds s"
  mkdir -p "corpus/$target" "artifacts/$target"
  "$CARGO_TARGET_DIR/$host/release/$target" "corpus/$target" -artifact_prefix="artifacts/$target/" \
    -max_total_time="$seconds" -max_len=131072 -rss_limit_mb=1024 -print_final_stats=1
done
