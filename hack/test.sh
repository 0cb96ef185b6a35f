#!/usr/bin/env bash
# All tests, suite by suite: what each took, and at the end how many passed.
set -uo pipefail
cd "$(dirname "$0")/.."
# Random stories and troubles start from the same seeds, so that a red run is about the change; make prove and make chaos take others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1} CHAOS_SEED=${CHAOS_SEED:-1,2}
export RUST_BACKTRACE=0 LAB_TEST_NAME=${LAB_TEST_NAME:-maketest} LAB_BUNDLES=${LAB_BUNDLES:-$PWD/target/bundles} CARGO_TERM_COLOR=never
notes=$(mktemp -d)

. hack/sweep.sh
finish() {
  sweep >/dev/null 2>&1
  rm -rf "$notes"
}
trap finish EXIT

# suite NAME COMMAND…: runs it, notes cargo's results, keeps going.
suite() {
  local name=$1 started=$SECONDS status passed failed log; shift
  log=$(mktemp -p "$notes")
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  passed=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
  failed=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
  # A check without a test runner counts as one test.
  if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ] && [ "$status" -eq 0 ]; then passed=1; fi
  if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
  if [ "$failed" -gt 0 ]; then
    printf '\n-- %s\n' "$name"
    grep -A 5 ' panicked at ' "$log" || tail -n 30 "$log"
  fi >>"$notes/failures"
  printf '%d\t%d\t%d\t%s\n' "$passed" "$failed" $((SECONDS - started)) "$name" >>"$notes/results"
}
green() { awk -F '\t' '$2 > 0 {exit 1}' "$notes/results"; }

# beside FUNCTION: runs its suites while others run; `together` waits for all such, and prints what they printed. One that was
# ended before its last suite is a failure, too.
beside() {
  ("$1" && touch "$notes/ended-$1") >"$notes/beside-$1" 2>&1 &
}
together() {
  local name
  wait
  for name in "$notes"/beside-*; do
    cat "$name"
    name=${name##*/beside-}
    [ -e "$notes/ended-$name" ] || printf '0\t1\t0\t%s\n' "$name, which did not come to its end" >>"$notes/results"
  done
  rm "$notes"/beside-*
}

. hack/need.sh
# The mutants of the model checker are patches.
need patch patch
# The emulator of Azure's store comes from npm.
need npm nodejs npm
# Prometheus' own tool checks the alerts.
need promtool prometheus

# Always the whole workspace: a part of it would be built anew with other features.
tests="cargo test --workspace --no-fail-fast"
# These have a lab for themselves, by `lab_alone`; so they get one, and the others need not wait for them.
lonely="nodes:: chaos:: install:: backup::the_notes backup::faults:: restore::faults::the_store operator::of_twenty"

# These make no lab and no mount: they may run beside the one that looks for what labs leave behind.
computing() {
  suite "model checker" $tests --test standard --test normal --test mutants -- --nocapture
  suite "mutants" hack/mutants.sh 5
  suite "fuzzing, in short" hack/fuzz.sh 5 inspect manifests stores versions endpoints
  suite "etcd 3.1 to 3.6" $tests --test client --test real
}
checking() {
  suite "backups of etcd 3.1 to 3.6, in folders, S3 and Azure" $tests --test backups --test azure --test commands
  suite "files and schemas" $tests --test files --test rules --test backup_rules --test schema --test bundles --test docs --test release --test examples
}
waiting() {
  suite "nginx operator, real API server" $tests --test apiserver
}
labs() {
  export LAB_TEST_NAME="${LAB_TEST_NAME}lab"
  suite "the lab itself" $tests --test cluster --test faults --test lifecycle --test programs --test page
  suite "demo" env NAME="${LAB_TEST_NAME}demo" hack/demo-test.sh
}
alone() {
  export LAB_TEST_NAME="${LAB_TEST_NAME}alone"
  suite "scenarios that need a lab for themselves" env CHAOS_SECONDS=300 $tests --test e2e -- --nocapture --test-threads=1 $lonely
}

suite "format" make -s fmt
suite "alerts" make -s alerts
suite "build" cargo build --workspace --bins
suite "build of the tests" cargo build --workspace --bins --tests
suite "licences and sources" make -s deny
suite "clippy" make -s clippy
suite "fuzz targets" make -s fuzz-check
sweep
suite "lab up" target/debug/lab up --name "$LAB_TEST_NAME"
if green; then
  suite "units and properties" $tests --lib --bins
  beside computing
  suite "what labs leave behind" $tests --test leftovers
  beside checking
  beside waiting
  suite "real API server" $tests --test api --test shutdown
  suite "nginx operator on the lab" $tests --test onlab -- --test-threads=2
  together
  beside labs
  suite "faults at every write, and specs" $tests --test proof -- --nocapture --test-threads=1
  together
  sweep "$LAB_TEST_NAME"
  # Operators and their clients are one session for the scheduler, as is each of the labs' many programs.
  [ ! -w /proc/self/autogroup ] || echo -5 >/proc/self/autogroup
  beside alone
  suite "scenarios" $tests --test e2e -- --show-output --test-threads=3 $(printf -- '--skip %s ' $lonely tutorial::)
  suite "tutorial" $tests --test e2e -- --show-output --test-threads=1 tutorial::
  together
fi

if ! green; then
  printf '\n== what failed\n'
  cat "$notes/failures"
fi
printf '\n== time\n'
awk -F '\t' '{printf "%5d s  %s\n", $3, $4}' "$notes/results"
awk -F '\t' '$2 > 0 {printf "\nbroken: %s\n", $4}' "$notes/results"
awk -F '\t' '{passed += $1; failed += $2} END {printf "\n%d passed, %d failed\n", passed, failed}' "$notes/results"
green
