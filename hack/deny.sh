#!/usr/bin/env bash
# Licences, bans and sources of all dependencies. cargo-deny is built once, into the lab's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
root=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/etcd-operator-lab}/cargo-deny-$version
[ -x "$root/bin/cargo-deny" ] || cargo install --locked --quiet --root "$root" "cargo-deny@$version"
exec "$root/bin/cargo-deny" check licenses bans sources
