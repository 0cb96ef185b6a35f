#!/usr/bin/env bash
# Walks through docs/tutorial.md: every command in it, then what it printed, with a live line of a client beneath.
# On a lab of its own, or with KUBECONFIG=… in the namespace "default" of a cluster of yours; there IMAGE= and NGINX_IMAGE= name
# images that it can pull, and AWS_DIR= AWS's files for a store that has the bucket "mybucket".
# FAST=1 takes no pauses; DEMO=interactive waits for a key; NAME= names the lab; PICTURE=FILE.svg keeps a picture of it.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${PICTURE:-}" ] && [ -z "${PICTURED:-}" ]; then
  PICTURED=1 "$0" | tee >(awk -f hack/picture.awk >"$PICTURE")
  exit
fi
. hack/demo-objects.sh
name=${NAME:-demo} lab=target/debug/lab started=$SECONDS own=${KUBECONFIG:+yes} seen="nothing" beneath=
clean="${own:+KUBECONFIG=$KUBECONFIG }${NAME:+NAME=$NAME }make clean-demo"
bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)

say() {
  printf '\n%s# %s%s\n' "$bold" "$*" "$plain"
  if [ "${DEMO:-}" = interactive ]; then read -rsn1 -p '(any key)' </dev/tty && echo; elif [ -z "${FAST:-}" ]; then sleep 2; fi
}
# The client's last words beneath whatever runs, on a terminal.
live() { while sleep 1; do printf '\r\033[K%s\r' "$(kubectl logs deploy/client --tail=1 2>/dev/null | cut -c1-120)"; done; }
trap '[ -z "$beneath" ] || kill $beneath 2>/dev/null || true' EXIT
show() {
  printf '%s$ %s%s\n' "$bold" "$1" "$plain"
  if [ -t 1 ]; then live & beneath=$!; fi
  eval "$1" || failed "$1"
  if [ -n "$beneath" ]; then kill $beneath && wait $beneath 2>/dev/null || printf '\033[K'; fi
  beneath=
}
# failed COMMAND: what tells why. Pods of a Deployment begin with its name.
failed() {
  printf '\nThis failed. '
  case $1 in
  'kubectl rollout status deployment/'*)
    local deployment=${1#*deployment/}; deployment=${deployment%% *}
    printf 'What Kubernetes knows of its pods:\n' && kubectl describe pods "$deployment" | tail -40 ;;
  *) printf 'What the operator knows:\n' && kubectl describe etcdclusters | tail -40 ;;
  esac
  printf '\nTo begin anew, first: %s\n' "$clean"
  exit 1
}
# image MANIFEST: the one that it names.
image() { awk '$1 == "image:" {print $2; exit}' "$1"; }
# replaced MANIFEST IMAGE: $command, with an image of yours in a manifest that it applies.
replaced() {
  [ -z "$2" ] || command=${command/kubectl apply -f $1/sed \"s|image: .*|image: $2|\" $1 | kubectl apply -f -}
}

if [ -z "$own" ]; then
  say "Building the operators and the lab"
  . hack/need.sh
  cargo build -q --workspace --bins
  $lab up --name "$name"
  for program in etcd-operator nginx-operator; do $lab publish target/debug/$program --name "$name" >/dev/null; done
  export KUBECONFIG; KUBECONFIG=$($lab kubeconfig --name "$name")
  path=$($lab shell --name "$name" -- sh -c 'echo $PATH'); export PATH=$path
  AWS_DIR=$($lab aws-dir --name "$name") NGINX=yes
fi
[ -z "${NGINX_IMAGE:-}" ] || NGINX=yes
refuse() { printf '%s\n' "$@" >&2; exit 1; }
reachable
begun=$(found "$mark")
[ -z "$begun" ] || refuse "A demo was begun here before; first remove it: $clean"
before=$(served "${kinds[@]}" | tr '\n' ' ')
already=$(found "${others[@]}")
for instance in "${instances[@]}"; do
  [[ " $before " != *"/${instance%%/*} "* ]] || already+=" $(found "$instance")"
done
[ -z "${already// /}" ] || refuse "The demo makes objects of these names, and they are in the namespace \"default\" already:" "$already" \
  "They are not the demo's: remove them yourself, or leave KUBECONFIG out for a lab."
# One for all namespaces would look after the demo's objects, too.
everywhere=$(kubectl get deployments --all-namespaces -o jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name} {.spec.template.spec.containers[*].command} {.spec.template.spec.containers[*].args}{"\n"}{end}' |
  awk '/etcd-operator/ && /-cluster-wide/ && !/-cluster-wide=false/ {print $1}')
[ -z "$everywhere" ] || refuse "An operator for all namespaces is there already, and would act beside the demo's own:" "$everywhere" \
  "Follow docs/tutorial.md without its first step, or leave KUBECONFIG out for a lab."
namespace=$(kubectl config view --minify -o jsonpath='{.contexts[0].context.namespace}')
[ "${namespace:-default}" = default ] || refuse "The demo is for the namespace \"default\", and your kubeconfig is at \"$namespace\":" \
  "kubectl config set-context --current --namespace=default"
kubectl create "${mark%/*}" "${mark#*/}" --from-literal=kinds="$before" >/dev/null

if [ -n "$own" ]; then
  say "On the cluster of $KUBECONFIG"
  echo "Its nodes pull ${IMAGE:-$(image deploy/etcd-operator.yaml), unless IMAGE= names another that they can pull}."
  echo "AWS_DIR= adds backups and a restore, NGINX_IMAGE= an image of the nginx operator: docs/tutorial.md."
fi

heading= inside= skip=
while IFS= read -r line <&3; do
  case $line in
  '## '*) heading=${line#\#\# } skip= ;;
  '<!-- needs '*)
    needed=${line#<!-- needs }; needed=${needed% -->}
    [ -n "${!needed:-}" ] || { skip=yes; say "$heading: left out, there is no $needed"; } ;;
  '```sh') inside=yes; [ -n "$skip" ] || say "$heading" ;;
  '```') inside= ;;
  *)
    [ -n "$inside" ] && [ -z "$skip" ] || continue
    command=$line
    replaced deploy/etcd-operator.yaml "${IMAGE:-}"
    replaced example/nginx/operator.yaml "${NGINX_IMAGE:-}"
    show "$command"
    [[ $line != 'kubectl logs deploy/client'* ]] || seen=$(eval "$line") ;;
  esac
done 3<docs/tutorial.md

say "Done in $((SECONDS - started)) s. Through scaling, a lost member and an upgrade the client saw: $seen"
shell=
[ -n "$own" ] || shell="$lab shell --name $name"
echo "Look around:"
[ -n "$own" ] || echo "  $shell   # a shell with kubectl and etcdctl"
echo "  ${shell:+$shell -- }kubectl logs -f deploy/client
  $clean   # removes all of it"
