#!/usr/bin/env bash
# Shows the etcd operator at work on a lab of its own: every command, then what it printed.
# FAST=1 takes no pauses; DEMO=interactive waits for a key; NAME= names the lab.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${NAME:-demo} lab=target/debug/lab started=$SECONDS
bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)

say() {
  printf '\n%s# %s%s\n' "$bold" "$*" "$plain"
  if [ "${DEMO:-}" = interactive ]; then read -rsn1 -p '(any key)' && echo; elif [ -z "${FAST:-}" ]; then sleep 2; fi
}
show() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; eval "$*"; }
# settled SIZE VERSION [GONE]: waits until the cluster is at rest as it was asked for, and the member GONE is no more.
settled() {
  local size=$1 version=$2 gone=${3:-none} end=$((SECONDS + 300)) seen= members=
  while [ $SECONDS -lt $end ]; do
    seen=$(kubectl get etcdcluster example-etcd-cluster -o jsonpath='{.status.readyMembers}/{.status.size} {.status.currentVersion} {.status.targetVersion}')
    members=$(kubectl get etcdcluster example-etcd-cluster -o jsonpath='{.status.members}')
    if [ "$seen" = "$size/$size $version " ] && [[ $members != *"$gone"* ]]; then show_line "ready: $seen"; echo; return; fi
    show_line "waiting for $size members of $version: $seen"; sleep 0.5
  done
  printf '\nnot there after 300 s: %s\n' "$seen"; kubectl describe etcdcluster example-etcd-cluster; return 1
}
# A line that changes in place, on a terminal.
show_line() { if [ -t 1 ]; then printf '\r%-70s' "$1"; fi; }
etcdctl() { kubectl exec deploy/client -- env ETCDCTL_API=3 etcdctl --endpoints http://example-etcd-cluster-client:2379 "$@"; }

say "Building the operator and the lab"
cargo build -q --workspace --bins
$lab up --name "$name"
$lab publish target/debug/etcd-operator --name "$name" >/dev/null
export KUBECONFIG; KUBECONFIG=$($lab kubeconfig --name "$name")
path=$($lab shell --name "$name" -- sh -c 'echo $PATH'); export PATH=$path

say "Install the operator: its CRD, its rights, itself"
for part in crd sa role rolebinding deployment; do show kubectl apply -f example/ch03/etcd-operator-$part.yaml; done
show kubectl rollout status deployment/etcd-operator --timeout=180s

say "Ask for a cluster of three"
show kubectl apply -f example/ch03/etcd-cluster-cr.yaml
settled 3 3.1.10
show kubectl get pods -l app=etcd
show kubectl describe etcdcluster/example-etcd-cluster
show kubectl get services --selector etcd_cluster=example-etcd-cluster

say "Write and read"
kubectl create deployment client --image=quay.io/coreos/etcd -- sleep 1000000 2>/dev/null || true
kubectl rollout status deployment/client --timeout=180s >/dev/null
show etcdctl put foo bar
show etcdctl get foo
kubectl exec deploy/client -- sh -c 'export ETCDCTL_API=3; ok=0; failed=0; end=$(($(date +%s) + 1800))
  while [ $(date +%s) -lt $end ] && [ ! -e /tmp/stop ]; do
    put="etcdctl --endpoints http://example-etcd-cluster-client:2379 --command-timeout=3s put tick $(date +%s)"
    # As clients do: a request that met a member on its way out is sent once more.
    if $put >/dev/null 2>&1 || $put >/dev/null 2>&1; then ok=$((ok + 1)); else failed=$((failed + 1)); fi
    echo "$ok $failed" >/tmp/ticks; sleep 0.2
  done' >/dev/null 2>&1 &
ticking=$!
trap 'kill $ticking 2>/dev/null || true' EXIT

say "Four members, while a client writes all the time"
show "kubectl patch etcdcluster example-etcd-cluster --type=merge -p '{\"spec\":{\"size\":4}}'"
settled 4 3.1.10
show kubectl get pods -l app=etcd

say "Lose a member"
victim=$(kubectl get pods -l app=etcd -o jsonpath='{.items[0].metadata.name}')
show kubectl delete pod "$victim"
settled 4 3.1.10 "$victim"
show kubectl get pods -l app=etcd

say "Upgrade, member by member"
show "kubectl patch etcdcluster example-etcd-cluster --type=json -p '[{\"op\": \"replace\", \"path\": \"/spec/version\", \"value\":3.2.13}]'"
settled 4 3.2.13
show "kubectl get pods -l app=etcd -o yaml | grep 'image: quay' | sort | uniq -c"
show "kubectl get events --field-selector involvedObject.kind=EtcdCluster --sort-by=.lastTimestamp | tail -15"

say "What the client saw"
kubectl exec deploy/client -- touch /tmp/stop
ticks=$(kubectl exec deploy/client -- cat /tmp/ticks)
echo "writes acknowledged: ${ticks% *}, failed: ${ticks#* }"
show etcdctl get foo

say "Done in $((SECONDS - started)) s. Look around:"
cat <<EOF
  export KUBECONFIG=$KUBECONFIG
  $lab shell --name $name        a shell with kubectl and etcdctl
  make clean-demo                removes all of it
EOF
