# Waits until DNS knows the host $1, for at most $2 seconds, and then lets etcd start all the same.
# The name is made absolute, so that neither /etc/hosts nor a resolver that knows no search list answers for DNS.
zone=$(sed -n 's/^search.* svc[.]\([^ ]*\).*/.\1./p' /etc/resolv.conf)
case $1 in
*.svc) name=$1$zone ;;
*) name=$1. ;;
esac
end=$(($(date +%s) + $2))
until nslookup "$name" >/dev/null 2>&1; do
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "DNS does not know $name after $2 s: going on without it" | tee /dev/termination-log
    exit 0
  fi
  sleep 0.2 2>/dev/null || sleep 1
done
