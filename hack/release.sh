#!/usr/bin/env bash
# Builds what a release consists of into target/dist: programs, images, what they are made of, checksums.
# The same sources give the same image on the same Debian: it is made twice and compared.
set -euo pipefail
cd "$(dirname "$0")/.."
out=target/dist lab=target/debug/lab
image() { awk '$1 == "image:" {print $2; exit}' "$1"; } # that a manifest names
limit() { # FILE MEGABYTES
  local size; size=$(stat -c %s "$1")
  printf '%6d.%d MB  %s\n' $((size / 1000000)) $((size / 100000 % 10)) "$1"
  [ "$size" -lt $(($2 * 1000000)) ] || { echo "$1 is larger than $2 MB" >&2; exit 1; }
}

hack/build-release.sh
${CARGO:-cargo} build --locked --package lab

rm -rf $out && mkdir -p $out
for program in etcd-operator nginx-operator; do
  case $program in
  etcd-operator) image=$(image deploy/etcd-operator.yaml) ;;
  nginx-operator) image=$(image example/nginx/operator.yaml) ;;
  esac
  install -m 755 target/release/$program $out/$program-linux-"$(uname -m)"
  $lab export target/release/$program $out/$program.oci.tar --name "$image"
  $lab export target/release/$program $out/again.tar --name "$image"
  cmp $out/$program.oci.tar $out/again.tar && rm $out/again.tar
  hack/sbom.sh $program >$out/$program.cdx.json
  limit $out/$program-linux-"$(uname -m)" 15
  limit $out/$program.oci.tar 25
done
(cd $out && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
