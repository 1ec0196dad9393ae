#!/bin/sh
# pool-seq.sh FATHOM SCRATCH WHAT RW BLOCK DEPTH: serves a disk of 512 MiB over a Unix socket, fills it, and prints how fast fio reads or
# writes it (RW: read, randread, write, randwrite; sync: DEPTH clients that each write a block, flush, and so on), and how fast nbdcopy
# copies all of it out or in.
#
# server.rate and nbdcopy.server.rate are bytes per second of processor time that all servers took together, coordinator and nodes
# (proc(5), stat): other programs on the machine change them less than a rate.
#
# WHAT: nbdkit-memory, nbdkit-file; nbdkit-relay (nbdkit's nbd plugin in front of nbdkit-file: the cost of two nbdkit processes); memory
# (the coordinator's own); node, stripe, concat (one or four nodes with stores in files). With "-together" all servers run on one
# processor, the last that this script may use. With RATE (such as 400mbit, as root) each node is in its own network namespace, behind a
# link of that rate in both directions.
# shellcheck disable=SC2086 # $nodes and $apart are lists of arguments.
set -eu
fathom=$1 scratch=$2 what=$3 rw=$4 block=$5 depth=$6 rate=${7:-}
everywhere=$(taskset -c -p $$) && everywhere=${everywhere##* }
size=512M bytes=$((512 << 20)) servers="" spaces="" subnet=$(($$ % 250))

# However the script ends, no server is left behind; the coordinator ends first, then its nodes.
end() {
    trap - EXIT
    for server in $servers; do { kill "$server" && wait "$server"; } || true; done
    for space in $spaces; do ip netns delete "$space"; done
}
trap 'exit 1' HUP INT TERM
trap end EXIT

# Waits for a file or a socket: $1 is the test, $2 the path.
there() {
    for _ in $(seq 200); do
        test "$1" "$2" && return
        sleep 0.05
    done
    echo "there is no $2" >&2
    exit 1
}

nodes=""
# Creates a namespace for node $1, and a link to it whose ends both send at the rate; $inside runs a command there.
link() {
    space=fp$$-$1 near=fp$$n$1 host=10.231.$subnet.$(($1 * 4 + 1)) there=10.231.$subnet.$(($1 * 4 + 2))
    ip netns add "$space"
    spaces="$spaces $space"
    ip link add "$near" type veth peer name far netns "$space"
    ip addr add "$host/30" dev "$near" && ip link set "$near" up
    ip -n "$space" addr add "$there/30" dev far && ip -n "$space" link set far up
    tc qdisc add dev "$near" root tbf rate "$rate" burst 64k latency 50ms
    tc -n "$space" qdisc add dev far root tbf rate "$rate" burst 64k latency 50ms
    inside="ip netns exec $space" apart="--insecure --no-shared-memory"
}

node() {
    inside="" there=127.0.0.1 apart=""
    [ -z "$rate" ] || link "$1"
    $inside "$fathom" pool node --init --store "$scratch/store$1" --size "$2" 2>/dev/null
    $inside "$fathom" pool node --store "$scratch/store$1" --listen "$there:0" --insecure ${apart:+--insecure} >"$scratch/node$1" 2>/dev/null &
    servers="$! $servers"
    there -s "$scratch/node$1"
    nodes="$nodes --node $(cat "$scratch/node$1")"
}

coordinator() {
    "$fathom" pool serve "$@" --nbd "unix:$scratch/nbd" --insecure ${apart:-} >/dev/null 2>&1 &
    servers="$! $servers"
}

# Only the servers are pinned; the client may run anywhere.
case $what in
    *-together)
        what=${what%-together}
        taskset -c -p "${everywhere##*[,-]}" $$ >/dev/null
        ;;
esac

case $what in
    nbdkit-memory)
        nbdkit --foreground --unix "$scratch/nbd" memory "$size" &
        servers=$!
        ;;
    nbdkit-file)
        truncate -s "$size" "$scratch/disk"
        nbdkit --foreground --unix "$scratch/nbd" file "$scratch/disk" &
        servers=$!
        ;;
    nbdkit-relay)
        truncate -s "$size" "$scratch/disk"
        nbdkit --foreground --unix "$scratch/behind" file "$scratch/disk" &
        servers=$!
        there -S "$scratch/behind"
        nbdkit --foreground --unix "$scratch/nbd" nbd "socket=$scratch/behind" &
        servers="$! $servers"
        ;;
    memory) coordinator --backend "memory:$size" ;;
    node) node 0 "$size" && coordinator $nodes ;;
    stripe | concat)
        for nth in 0 1 2 3; do node $nth 128M; done
        coordinator $nodes --layout "$what"
        ;;
    *) echo "no such server: $what" >&2 && exit 2 ;;
esac
there -S "$scratch/nbd"

# The servers have inherited the pinning; undo it for the client.
taskset -c -p "$everywhere" $$ >/dev/null
uri="nbd+unix:///?socket=$scratch/nbd"
load() { fio --name=load --ioengine=nbd --uri="$uri" --size="$size" --output-format=terse --terse-version=3 "$@"; }
load --rw=write --bs=1M --iodepth=8 >/dev/null
# In fio's terse line, field 7 is the reads in KiB/s and field 48 the writes.
# The processor time of the servers, in clock ticks.
time_of() {
    for server in $servers; do cat "/proc/$server/stat"; done | awk '{ sub(/.*\) /, ""); n += $12 + $13 + $14 + $15 } END { print n }'
}
hz=$(getconf CLK_TCK)
case $rw in
    sync) set -- --rw=randwrite --iodepth=1 --fsync=1 --numjobs="$depth" --thread --group_reporting ;;
    *) set -- --rw="$rw" --iodepth="$depth" ;;
esac
load "$@" --bs="$block" --time_based --runtime=1 >/dev/null
before=$(time_of)
line=$(load "$@" --bs="$block" --time_based --runtime=4)
after=$(time_of)
# In fio's terse line, fields 6 and 47 are the KiB read and written, and fields 7 and 48 their rates.
echo "$line" | awk -F ';' -v ticks=$((after - before)) -v hz="$hz" '$1 == 3 {
    printf "{\"metric\":\"rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", ($7 + $48) * 1024
    printf "{\"metric\":\"server.rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", ($6 + $47) * 1024 / (ticks / hz)
    n++
} END { exit !n }'

now() { date +%s%N; }
case $rw in
    read | randread) set -- "$uri" null: ;;
    *)
        head -c "$bytes" /dev/urandom >"$scratch/source"
        set -- "$scratch/source" "$uri"
        ;;
esac
before=$(time_of) begun=$(now)
nbdcopy "$@"
ended=$(now) after=$(time_of)
awk -v ns=$((ended - begun)) -v bytes=$bytes -v ticks=$((after - before)) -v hz="$hz" 'BEGIN {
    printf "{\"metric\":\"nbdcopy.rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", bytes / ns * 1e9
    if (ticks > 0) printf "{\"metric\":\"nbdcopy.server.rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", bytes / (ticks / hz)
}'
