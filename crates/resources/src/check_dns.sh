# Waits until DNS knows the host $1, for at most $2 seconds, and until the others list exactly the members in
# $INITIAL_CLUSTER; then, or if that takes too long, lets etcd start.
nap() { sleep "$1" 2>/dev/null || sleep 1; }
told=$(echo "$INITIAL_CLUSTER" | tr ',' '\n' | sed 's/^[^=]*=//' | sort)
listed() {
  for peer in $told; do
    case $peer in *://"$1":*) continue ;; esac
    members=$(wget -q -T 1 -O - "$peer/members" 2>/dev/null | tr '"' '\n' | grep ':2380$' | sort)
    [ "$members" = "$told" ] && return 0
  done
  return 1
}

# The name is made absolute, so that neither /etc/hosts nor a resolver that knows no search list answers for DNS.
zone=$(sed -n 's/^search.* svc[.]\([^ ]*\).*/.\1./p' /etc/resolv.conf)
case $1 in
*.svc) name=$1$zone ;;
*) name=$1. ;;
esac
end=$(($(date +%s) + $2))
# DNS servers remember a no for seconds, and the kubelet tells of the address only now: better not to ask at once.
nap 0.5
until nslookup "$name" >/dev/null 2>&1; do
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "DNS does not know $name after $2 s: going on without it" | tee /dev/termination-log
    break
  fi
  nap 0.2
done

# A first member has no others, and one that comes back to its data has joined them long ago.
case $INITIAL_CLUSTER in *,*) ;; *) exit 0 ;; esac
end=$(($(date +%s) + 600))
until listed "$1"; do
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "the others do not list $INITIAL_CLUSTER after 600 s: going on all the same" | tee /dev/termination-log
    break
  fi
  nap 0.2
done
