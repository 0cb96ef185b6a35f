# Waits until DNS knows the host $1, for at most $2 seconds, and until the others list exactly the members in
# $INITIAL_CLUSTER; then, or if that takes too long, lets etcd start.
zone=$(sed -n 's/^search.* svc[.]\([^ ]*\).*/.\1./p' /etc/resolv.conf)
nap() { sleep "$1" 2>/dev/null || sleep 1; }
after() { [ "$(date +%s)" -ge "$1" ]; }

# Names are made absolute, so that neither /etc/hosts nor a resolver that knows no search list answers for DNS.
address() {
  case $1 in
  *.svc) nslookup "$1$zone" ;;
  *) nslookup "$1." ;;
  esac 2>/dev/null | sed -n '/^Name:/,$s/^Address[^:]*: *\([0-9a-f.:]*\).*/\1/p' | head -n 1
}

# With nc and by address: wget of a static busybox looks for libraries that are not there.
members() {
  host=${1#*://} port=${1##*:}
  printf 'GET /members HTTP/1.0\r\n\r\n' | nc -w 1 "$(address "${host%:*}")" "$port" 2>/dev/null |
    tr '"' '\n' | grep ":$port\$" | sort
}

told=$(echo "$INITIAL_CLUSTER" | tr ',' '\n' | sed 's/^[^=]*=//' | sort)
listed() {
  for peer in $told; do
    case $peer in *://"$1":*) continue ;; esac
    [ "$(members "$peer")" = "$told" ] && return 0
  done
  return 1
}

# DNS servers remember a no for seconds, and the kubelet tells of the address only now: better not to ask at once.
end=$(($(date +%s) + $2))
nap 0.5
until [ -n "$(address "$1")" ]; do
  if after "$end"; then
    echo "DNS does not know $1 after $2 s: going on without it" | tee /dev/termination-log
    break
  fi
  nap 0.2
done

# A first member has no others, and one that comes back to its data has joined them long ago.
case $INITIAL_CLUSTER in *,*) ;; *) exit 0 ;; esac
end=$(($(date +%s) + 600))
until listed "$1"; do
  if after "$end"; then
    echo "the others do not list $INITIAL_CLUSTER after 600 s: going on all the same" | tee /dev/termination-log
    break
  fi
  nap 0.2
done
