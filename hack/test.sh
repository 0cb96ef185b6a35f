#!/usr/bin/env bash
# All tests, suite by suite: what each took, and at the end how many passed.
set -uo pipefail
cd "$(dirname "$0")/.."
# Random stories and troubles start from the same seeds, so that a red run is about the change; make prove and make chaos take others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1} CHAOS_SEED=${CHAOS_SEED:-1}
export RUST_BACKTRACE=0 LAB_TEST_NAME=${LAB_TEST_NAME:-test} LAB_BUNDLES=${LAB_BUNDLES:-$PWD/target/bundles} CARGO_TERM_COLOR=never
log=$(mktemp); shares=$(mktemp); passed=0 failed=0 broken=()

# Labs of this run or an earlier one, whatever became of their processes: their names all begin alike.
sweep() {
  target/debug/lab list | awk -v prefix="$LAB_TEST_NAME" 'index($1, prefix) == 1 {print $1}' | while read -r name; do
    target/debug/lab down --name "$name"
  done
}
finish() {
  sweep >/dev/null 2>&1
  rm -f "$log" "$shares"
}
trap finish EXIT

# suite NAME COMMAND…: runs it, counts cargo's results, keeps going.
suite() {
  local name=$1 started=$SECONDS status; shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  local p f
  p=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
  f=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
  passed=$((passed + p)) failed=$((failed + f))
  # A check without a test runner counts as one test.
  if [ "$p" -eq 0 ] && [ "$f" -eq 0 ] && [ "$status" -eq 0 ]; then passed=$((passed + 1)); fi
  if [ "$status" -ne 0 ]; then
    broken+=("$name")
    [ "$f" -gt 0 ] || failed=$((failed + 1))
  fi
  printf '%5d s  %s\n' $((SECONDS - started)) "$name" >>"$shares"
}

# Debian's Rust needs a C compiler, and some crates cmake or perl; nothing else is needed to build.
command -v cc >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev; }
command -v patch >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends patch; }
# The emulator of Azure's store comes from npm.
command -v npm >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends nodejs npm; }

suite "format" make -s fmt
suite "build" cargo build --workspace --bins
suite "licences and sources" make -s deny
suite "clippy" make -s clippy
sweep
suite "lab up" target/debug/lab up --name "$LAB_TEST_NAME"
if [ ${#broken[@]} -eq 0 ]; then
  # Always the whole workspace: a part of it would be built anew with other features.
  tests="cargo test --workspace --no-fail-fast"
  suite "units and properties" $tests --lib --bins
  suite "model checker" $tests --test standard --test normal --test mutants -- --nocapture
  suite "mutants" hack/mutants.sh 5
  suite "files and schemas" $tests --test files --test rules --test backup_rules --test schema --test bundles --test docs
  suite "etcd 3.1 to 3.6" $tests --test client --test real
  suite "backups of etcd 3.1 to 3.6, in folders, S3 and Azure" $tests --test backups --test azure
  suite "real API server" $tests --test api --test shutdown
  suite "nginx operator, real API server" $tests --test apiserver
  suite "nginx operator on the lab" $tests --test onlab -- --test-threads=2
  suite "the lab itself" $tests --test cluster --test faults --test lifecycle --test programs --test leftovers
  suite "scenarios" $tests --test e2e -- --test-threads=2
  suite "demo" env FAST=1 NAME="${LAB_TEST_NAME}demo" hack/demo.sh
fi

printf '\n== time\n'; cat "$shares"
[ ${#broken[@]} -eq 0 ] || printf '\nbroken: %s\n' "${broken[*]}"
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
