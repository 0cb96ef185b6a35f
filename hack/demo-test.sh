#!/usr/bin/env bash
# The demo on a lab of its own, as its users have it: walked through, refused a second time, removed as from a cluster of
# theirs, and then with its lab. NAME= names the lab.
set -euo pipefail
cd "$(dirname "$0")/.."
unset KUBECONFIG
export FAST=1 NAME
lab=target/debug/lab
fail() { echo "$*" >&2; exit 1; }
# on COMMAND…: with kubectl and another file than the lab's own KUBECONFIG, as on a cluster of one's own.
on() { $lab shell --name "$NAME" -- env KUBECONFIG="$kubeconfig" "$@"; }
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
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
before=$scratch/before kubeconfig=$scratch/kubeconfig told=$scratch/told
cp "$($lab kubeconfig --name "$NAME")" "$kubeconfig"
inventory >"$before"
# On a cluster of one's own it takes no name that is taken.
on kubectl create secret generic aws
said=$(on hack/demo.sh 2>&1) && fail "a demo begins on what is somebody else's"
[[ $said == *secret/aws* ]] || fail "the demo does not say what is in its way: $said"
on kubectl delete secret aws
# Nor does it begin beside an operator that looks after all namespaces, nor without kubectl.
on kubectl create namespace everywhere
on kubectl -n everywhere create deployment etcd-operator --image=quay.io/coreos/etcd --replicas=0 -- etcd-operator --cluster-wide
said=$(on hack/demo.sh 2>&1) && fail "a demo begins beside an operator for all namespaces"
[[ $said == *everywhere/etcd-operator* ]] || fail "the demo does not say which operator is in its way: $said"
on kubectl delete namespace everywhere
mkdir "$scratch/bin"
ln -s "$(command -v dirname)" "$(command -v bash)" "$scratch/bin"
for script in demo clean-demo; do
  said=$(env PATH="$scratch/bin" KUBECONFIG="$kubeconfig" hack/$script.sh 2>&1) && fail "$script does without kubectl"
  [[ $said == *"no kubectl on PATH"* ]] || fail "$script does not say that kubectl is missing: $said"
done

hack/demo.sh | tee "$told"
grep -qE 'the client saw: [1-9][0-9]* requests answered, 0 failed,' "$told" || fail "the demo's client was not served all along"
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

# What the demo says at its end works as it is typed, also in a shell where KUBECONFIG is the lab's.
words() { sed -n '/^Look around:/,$ s/^  \([^#]*\).*/\1/p' "$told"; }
[ "$(words | wc -l)" -eq 3 ] || fail "the demo ends with other words: $(words)"
export KUBECONFIG; KUBECONFIG=$($lab kubeconfig --name "$NAME")
eval "$(words | sed -n 1p)" <<<'kubectl get nodes'
eval "$(words | sed -n '2s/logs -f deploy.client/version/p')"
eval "$(words | sed -n 3p)"
unset KUBECONFIG
if $lab list | awk -v name="$NAME" '$1 == name {found = 1} END {exit !found}'; then fail "the demo's lab is left"; fi
