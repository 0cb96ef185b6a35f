#!/usr/bin/env bash
# Gives the etcd operator its rights: a ClusterRole, and a binding to the ServiceAccount that the operator runs as.
set -o errexit -o nounset -o pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

role_name=etcd-operator
role_binding_name=etcd-operator
namespace=default
service_account=default

usage() {
  cat <<EOF
Usage: $(basename "$0") [OPTION=VALUE]...

Without options: for the ServiceAccount "default" of the namespace "default".

  --role-name=NAME          the ClusterRole to create (default: $role_name)
  --role-binding-name=NAME  the ClusterRoleBinding to create (default: $role_binding_name)
  --namespace=NAME          where the operator runs (default: $namespace)
  --service-account=NAME    what the operator runs as (default: $service_account)
  --help                    show this text
EOF
}

for argument in "$@"; do
  case $argument in
  --role-name=?*) role_name=${argument#*=} ;;
  --role-binding-name=?*) role_binding_name=${argument#*=} ;;
  --namespace=?*) namespace=${argument#*=} ;;
  --service-account=?*) service_account=${argument#*=} ;;
  --help | -h)
    usage
    exit
    ;;
  *)
    echo "Unknown option, or one without a value: $argument" >&2
    usage >&2
    exit 2
    ;;
  esac
done

fill_in() {
  sed -e "s|<ROLE_NAME>|$role_name|g" \
    -e "s|<ROLE_BINDING_NAME>|$role_binding_name|g" \
    -e "s|<NAMESPACE>|$namespace|g" \
    -e "s|<SERVICE_ACCOUNT>|$service_account|g" \
    "$folder/$1"
}

# Once more does no harm: the second run changes nothing, or what a newer version needs.
fill_in cluster-role-template.yaml | kubectl apply -f -
fill_in cluster-role-binding-template.yaml | kubectl apply -f -
