#!/usr/bin/env bash
# How long a lab takes and what it costs at rest, on an otherwise idle machine. COLD=no leaves out the start from empty
# caches, which builds Kubernetes and every etcd anew.
set -euo pipefail
cd "$(dirname "$0")/.."
lab=target/debug/lab name=benchlab
trap '$lab down --name $name >/dev/null 2>&1' EXIT
$lab down --name $name >/dev/null 2>&1

now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.1f", b - a}'; }
# Ticks of CPU that all processes of the lab have used: those in its network namespaces and cgroups.
pids() { for ns in $(ip netns list | awk '{print $1}' | grep "^lab-$name-"); do ip netns pids "$ns"; done; find /sys/fs/cgroup/lab-$name /sys/fs/cgroup/*/lab-$name -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u; }
ticks() { local sum=0 t; for p in $(pids | sort -un); do t=$(awk '{print $14 + $15}' "/proc/$p/stat" 2>/dev/null || echo 0); sum=$((sum + ${t:-0})); done; echo $sum; }
memory() { local sum=0 m; for p in $(pids | sort -un); do m=$(awk '/^Pss:/ {print $2}' "/proc/$p/smaps_rollup" 2>/dev/null || echo 0); sum=$((sum + ${m:-0})); done; echo $((sum / 1024)); }

cold=-
if [ "${COLD:-yes}" = yes ]; then
  empty=$(mktemp -d)
  trap '$lab down --name $name >/dev/null 2>&1; chmod -R u+w "$empty"; rm -rf "$empty"' EXIT
  start=$(now)
  LAB_CACHE=$empty/lab GOCACHE=$empty/build GOMODCACHE=$empty/modules $lab up --name $name >&2
  cold=$(took "$start")
  $lab down --name $name >/dev/null 2>&1
fi
start=$(now); $lab up --name $name >/dev/null 2>&1; up=$(took "$start")
start=$(now); $lab up --name $name >/dev/null 2>&1; again=$(took "$start")
sleep 60
before=$(ticks); sleep 60; after=$(ticks)
cpu=$(awk -v t=$((after - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN {printf "%.0f", 100 * t / hz / 60}')
mib=$(memory)
start=$(now); $lab down --name $name >/dev/null 2>&1; down=$(took "$start")
start=$(now); $lab up --name $name --api-only >/dev/null 2>&1; api=$(took "$start"); $lab down --name $name >/dev/null 2>&1
printf '%-42s %8s %8s\n' MEASURE SEEN LIMIT
printf '%-42s %7ss %7ss\n' "up from empty caches" "$cold" 1800 "up, three nodes, everything ready" "$up" 20 "up again, nothing to do" "$again" 5 "down" "$down" 10 "up, API only" "$api" 10
printf '%-42s %7s%% %7s%%\n' "CPU at rest, of one core" "$cpu" 30
printf '%-42s %4s MiB %4s MiB\n' "memory at rest" "$mib" 1536
awk -v e="${cold/-/0}" -v u="$up" -v c="$cpu" -v m="$mib" 'BEGIN {exit !(e < 1800 && u < 20 && c < 30 && m < 1536)}'
