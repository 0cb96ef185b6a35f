#!/usr/bin/env bash
# Shows that the model checker finds bugs: each patch of crates/model/mutants puts one into the rules, in a copy, and the
# checker must tell a story of it. `mutants.sh` takes them all, `mutants.sh N` takes N that change from day to day (MUTANTS_SEED
# picks others), `mutants.sh NAME…` takes those.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/need.sh
need patch patch
scratch=$PWD/target/mutants/tree build=$PWD/target/mutants/build
mapfile -t names < <(basename -s .patch -a crates/model/mutants/*.patch)
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  seed=${MUTANTS_SEED:-$(date +%j)}
  echo "seed $seed"
  # Every seed goes on where the last one stopped, so that all have their turn.
  start=$((10#$seed * $1 % ${#names[@]}))
  picked=()
  for ((i = 0; i < $1; i++)); do picked+=("${names[(start + i) % ${#names[@]}]}"); done
  names=("${picked[@]}")
elif [ $# -gt 0 ]; then
  names=("$@")
fi

# One workspace for all of them, each with rules and checker of its own: one build, and what they share is built once. Rules and
# checker are not optimised: most are caught within seconds, and building them is what takes the time.
rm -rf "$scratch"
mkdir -p "$scratch"
sed '/^default-members/d; s|^members = .*|members = ["*/crates/*"]|; /^\[workspace.dependencies\]/,/^$/ {/path = /d}' Cargo.toml >"$scratch/Cargo.toml"
cp Cargo.lock "$scratch/"
for name in "${names[@]}"; do
  mkdir -p "$scratch/$name/crates"
  cp -r crates/core crates/model "$scratch/$name/crates/"
  patch -s -p1 -d "$scratch/$name" <"crates/model/mutants/$name.patch"
  sed -i "s/^name = \"domain\"/name = \"domain-$name\"/; s/^\[features\]/[lib]\nname = \"domain\"\n\n[features]/" "$scratch/$name/crates/core/Cargo.toml"
  sed -i "s/^name = \"model\"/name = \"model-$name\"/; s/^\[\[bin\]\]/[lib]\nname = \"model\"\n\n[[bin]]/; s/^name = \"prove\"/name = \"prove-$name\"/
    s|^domain = .*|domain = { package = \"domain-$name\", path = \"../core\", features = [\"sim\"] }|" "$scratch/$name/crates/model/Cargo.toml"
done
# A build directory of its own: nobody waits for this build.
export CARGO_BUILD_BUILD_DIR={cargo-cache-home}/etcd-operator-build/mutants
(cd "$scratch" && ${CARGO:-cargo} build -q --bins --target-dir "$build")

missed=0
for name in "${names[@]}"; do
  header() { sed -n "s/^$1: //p" "crates/model/mutants/$name.patch"; }
  troubles=$(header Troubles)
  story=$("$build/debug/prove-$name" ask "$(header Question)" ${troubles:+--troubles "$troubles"} || true)
  if end=$(grep -m1 '^And so' <<<"$story"); then
    echo "caught $name: $end"
  else
    echo "MISSED $name: $(header Breaks)"
    missed=$((missed + 1))
  fi
done
echo "$((${#names[@]} - missed)) of ${#names[@]} mutants caught"
[ "$missed" -eq 0 ]
