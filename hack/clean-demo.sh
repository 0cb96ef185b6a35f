#!/usr/bin/env bash
# Removes what the demo made: its lab, or its objects in the namespace "default" of the cluster that KUBECONFIG= names.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${NAME:-demo} lab=target/debug/lab
# A KUBECONFIG that is the lab's own, as in `lab shell`, means the lab.
if [ -z "${KUBECONFIG:-}" ] || [ "$KUBECONFIG" -ef "$($lab kubeconfig --name "$name" 2>/dev/null)" ]; then
  # Always the whole workspace: a part of it would be built anew with other features.
  cargo build -q --workspace --bins
  exec $lab down --name "$name"
fi
. hack/demo-objects.sh
reachable
begun=$(found "$mark")
hint="A lab of the demo's own is removed by: env -u KUBECONFIG ${NAME:+NAME=$NAME }make clean-demo"
if [ -z "$begun" ]; then
  printf 'No demo was begun in the cluster that KUBECONFIG names: nothing is removed there.\n%s\n' "$hint"
  exit
fi
before=$(kubectl -n default get "$mark" -o jsonpath='{.data.kinds}')
gone() { kubectl delete --ignore-not-found "$@"; }

for instance in "${instances[@]}"; do
  there=$(served "${instance%%/*}")
  [ -z "$there" ] || gone -n default "$instance"
done
kubectl -n default wait --for=delete pod -l etcd_cluster=example-etcd-cluster --timeout=120s
gone -n default "${others[@]}"
gone -f example/nginx/operator.yaml
gone -n default serviceaccount/etcd-operator role/etcd-operator rolebinding/etcd-operator

# With a CRD goes every object of its kind, in all namespaces: only if there are none, and if it came with the demo.
kept=
for kind in "${kinds[@]}"; do
  there=$(served "$kind")
  [ -n "$there" ] || continue
  left=$(kubectl get "$kind" --all-namespaces --no-headers)
  if [[ " $before " == *" $there "* ]]; then
    kept+="$kind: it was there before the demo"$'\n'
  elif [ -n "$left" ]; then
    kept+="$kind: these are of it, and would go with it"$'\n'"$left"$'\n'
  else
    kubectl delete crd "$kind"
  fi
done
[[ $kept == *etcd.database* ]] || gone clusterrole/etcd-operator:view clusterrole/etcd-operator:edit
gone -n default "$mark"
[ -z "$kept" ] || printf '\nKept, for they are not the demo'"'"'s alone:\n%s' "$kept"
printf '\nWhat it saved stays in its store. %s\n' "$hint"
