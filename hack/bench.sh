#!/usr/bin/env bash
# The operators' figures beside their budgets, on labs of their own. Arguments go to the etcd operator's bench: --quick, --runs 3, …
set -euo pipefail
cd "$(dirname "$0")/.."
hack/build-release.sh
cargo build -q -p lab
trap 'target/debug/lab down --name bench >/dev/null; target/debug/lab down --name nginxbench >/dev/null' EXIT
status=0
# Backups beside etcd's own tools; needs no lab.
cargo run -q -p snapshot --example backups -- --operator target/release/etcd-operator || status=$?
cargo run -q -p nginx-operator --example memory -- target/release/nginx-operator || status=$?
cargo run -q -p etcd-operator --example bench -- --operator target/release/etcd-operator "$@" || status=$?
exit $status
