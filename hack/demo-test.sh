#!/usr/bin/env bash
# The demo on a lab of its own, as its users have it: walked through, refused a second time, removed as from a cluster of
# theirs, and then with its lab. NAME= names the lab.
set -euo pipefail
cd "$(dirname "$0")/.."
unset KUBECONFIG
export FAST=1 NAME
lab=target/debug/lab
fail() { echo "$*" >&2; exit 1; }
# on COMMAND…: with the lab's KUBECONFIG and kubectl, as on a cluster of one's own.
on() { $lab shell --name "$NAME" -- "$@"; }
inventory() {
  on kubectl -n default get -o name deployments,replicasets,pods,services,configmaps,secrets,serviceaccounts,roles,rolebindings,leases
  on kubectl -n default get -o name poddisruptionbudgets,persistentvolumeclaims
  on kubectl get -o name customresourcedefinitions,clusterroles,clusterrolebindings
}
# As it was before the demo: the garbage collector takes its time, but not a minute.
left_as_it_was() {
  local differs deadline=$((SECONDS + 60))
  until differs=$(inventory | diff "$before" -); do
    [ $SECONDS -lt $deadline ] || fail "the demo left something, or took too much: $differs"
    sleep 1
  done
}

cargo build -q --workspace --bins
$lab up --name "$NAME"
before=$(mktemp)
trap 'rm -f "$before"' EXIT
inventory >"$before"
# On a cluster of one's own it takes no name that is taken.
on kubectl create secret generic aws
said=$(on hack/demo.sh 2>&1) && fail "a demo begins on what is somebody else's"
[[ $said == *secret/aws* ]] || fail "the demo does not say what is in its way: $said"
on kubectl delete secret aws

hack/demo.sh
said=$(hack/demo.sh 2>&1) && fail "a second demo begins where the first is"
[[ $said == *"make clean-demo"* ]] || fail "a second demo does not say what to do: $said"

# A cluster of somebody else's, which would go with its CRD.
on kubectl create namespace mine
on kubectl -n mine apply -f example/ch03/etcd-cluster-cr.yaml
said=$(on hack/clean-demo.sh)
printf '%s\n' "$said"
[[ $said == *Kept*etcdclusters*mine* ]] || fail "it does not say what it keeps"
on kubectl -n mine get etcdcluster/example-etcd-cluster
on kubectl delete namespace mine
on hack/clean-demo.sh | grep 'No demo was begun'
on kubectl create configmap etcd-operator-demo
on hack/clean-demo.sh
left_as_it_was

hack/clean-demo.sh
if $lab list | awk -v name="$NAME" '$1 == name {found = 1} END {exit !found}'; then fail "the demo's lab is left"; fi
