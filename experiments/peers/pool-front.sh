#!/bin/sh
# pool-front.sh FATHOM PORT DEPTH SERVER...: starts an NBD server on one processor, fills its disk, asks for random 4 KiB with
# DEPTH requests under way from another processor, and ends it. The lines are those of `fathom pool bench --nbd`, and besides
# rate.p50, the reciprocal of the median latency.
#
# NAME is the export's, if not the default. PIDFILE says who a server is that goes into the background.
set -eu
fathom=$1 port=$2 depth=$3
shift 3

# The first and the last processor that may be used: the client's and the server's.
cpus=$(taskset -cp $$)
cpus=${cpus##*: }
client=${cpus%%[,-]*} server=${cpus##*[,-]}
[ "$client" != "$server" ] || { echo "two processors are needed" >&2; exit 1; }

taskset -c "$server" "$@" >/dev/null 2>&1 &
pid=$!
if [ -n "${PIDFILE:-}" ]; then
    wait $pid
    # It says so when it is in the background, which may take a moment.
    for i in $(seq 100); do [ -s "$PIDFILE" ] && break; sleep 0.05; done
    pid=$(cat "$PIDFILE")
fi
trap 'kill $pid; wait' EXIT
uri=nbd://127.0.0.1:$port/${NAME:-}
for i in $(seq 100); do nbdinfo --size "$uri" >/dev/null 2>&1 && break; sleep 0.05; done
taskset -c "$client" "$fathom" pool bench --nbd "$uri" --fill --threads "$depth" --block 4096 --duration 4 --server-pid $pid --lines |
    awk '{ print } /"latency.p50"/ { split($0, v, /"v":/); printf "{\"metric\":\"rate.p50\",\"unit\":\"1/s\",\"v\":%.1f}\n", 1e9 / v[2] }'
