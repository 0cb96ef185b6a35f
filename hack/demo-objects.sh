# What the demo makes, by name: demo.sh begins where none of it is, clean-demo.sh removes no more than this.
# Says that a demo was begun here, and which of its kinds were there before.
mark=configmap/etcd-operator-demo
instances=(
  nginxoperators.operator.example.com/instance
  etcdrestores.etcd.database.coreos.com/example-etcd-cluster
  etcdbackups.etcd.database.coreos.com/example-etcd-cluster-backup
  etcdclusters.etcd.database.coreos.com/example-etcd-cluster
)
kinds=("${instances[@]%%/*}")
others=(deployment/client deployment/nginx-operator deployment/etcd-operator secret/aws)

# found KIND/NAME…: those that are in "default", whatever namespace your kubeconfig is at.
found() { kubectl -n default get --ignore-not-found -o name "$@"; }
served() { kubectl get crd --ignore-not-found -o name "$@"; }

# reachable: whether there is a kubectl, and a cluster for it.
reachable() {
  local instead="or leave KUBECONFIG out for a lab"
  command -v kubectl >/dev/null || { echo "There is no kubectl on PATH: install it, $instead." >&2; return 1; }
  kubectl version >/dev/null || { echo "kubectl reaches no cluster: correct KUBECONFIG, $instead." >&2; return 1; }
}
