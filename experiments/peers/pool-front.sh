#!/bin/sh
# pool-front.sh FATHOM PORT DEPTH SERVER...: starts an NBD server on one processor, fills its disk, reads random 4 KiB blocks from another
# processor with DEPTH requests in flight, and ends it. Prints the lines of `fathom pool bench --nbd`, and rate.p50, the reciprocal of the
# median latency.
set -eu
# shellcheck source=pool-server.sh
. "${0%/*}/pool-server.sh"
# shellcheck disable=SC2034 # `serve` uses the port.
fathom=$1 port=$2 depth=$3
shift 3

# The first and the last processor that may be used: the client runs on the first, the server on the last.
cpus=$(taskset -cp $$)
cpus=${cpus##*: }
first=${cpus%%[,-]*} last=${cpus##*[,-]}
[ "$first" != "$last" ] || {
    echo "two processors are needed" >&2
    exit 1
}

serve taskset -c "$last" "$@"
taskset -c "$first" "$fathom" pool bench --nbd "$uri" --fill --threads "$depth" --block 4096 --duration 4 --server-pid "$server" --lines |
    awk '{ print } /"latency.p50"/ { split($0, v, /"v":/); printf "{\"metric\":\"rate.p50\",\"unit\":\"1/s\",\"v\":%.1f}\n", 1e9 / v[2] }'
