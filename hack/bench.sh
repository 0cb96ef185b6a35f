#!/usr/bin/env bash
# The operator's figures beside their budgets, on a lab of their own. Arguments go to the bench: --quick, --runs 3, …
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build -q --release -p etcd-operator
cargo build -q -p lab
# Backups beside etcd's own tools; needs no lab.
cargo run -q -p snapshot --example backups -- --operator target/release/etcd-operator
trap 'target/debug/lab down --name bench >/dev/null' EXIT
cargo run -q -p etcd-operator --example bench -- --operator target/release/etcd-operator "$@"
