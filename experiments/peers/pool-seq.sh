#!/bin/sh
# pool-seq.sh FATHOM SCRATCH WHAT RW BLOCK DEPTH: serves a disk of 512 MiB over a Unix socket, fills it, and prints how fast fio reads or
# writes it (RW: read, write, randwrite), and how fast nbdcopy copies all of it out or in.
#
# WHAT: nbdkit-memory, nbdkit-file; memory (the coordinator's own); node, stripe, concat (one or four nodes with stores in files).
set -eu
fathom=$1 scratch=$2 what=$3 rw=$4 block=$5 depth=$6
size=512M bytes=$((512 << 20)) servers=""

# However it ends, nobody is left behind; first the coordinator, then its nodes.
end() {
    trap - EXIT
    for server in $servers; do kill "$server" && wait "$server" || true; done
}
trap 'exit 1' HUP INT TERM
trap end EXIT

# Waits for a line or a socket.
there() {
    for _ in $(seq 200); do [ "$1" "$2" ] && return; sleep 0.05; done
    echo "there is no $2" >&2
    exit 1
}

nodes=""
node() {
    "$fathom" pool node --init --store "$scratch/store$1" --size "$2" 2>/dev/null
    "$fathom" pool node --store "$scratch/store$1" --listen 127.0.0.1:0 --insecure >"$scratch/node$1" 2>/dev/null &
    servers="$! $servers"
    there -s "$scratch/node$1"
    nodes="$nodes --node $(cat "$scratch/node$1")"
}

coordinator() {
    "$fathom" pool serve "$@" --nbd "unix:$scratch/nbd" --insecure >/dev/null 2>&1 &
    servers="$! $servers"
}

case $what in
nbdkit-memory) nbdkit --foreground --unix "$scratch/nbd" memory "$size" & servers=$! ;;
nbdkit-file)
    truncate -s "$size" "$scratch/disk"
    nbdkit --foreground --unix "$scratch/nbd" file "$scratch/disk" &
    servers=$!
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

uri="nbd+unix:///?socket=$scratch/nbd"
load() { fio --name=load --ioengine=nbd --uri="$uri" --size="$size" --output-format=terse --terse-version=3 "$@"; }
load --rw=write --bs=1M --iodepth=8 >/dev/null
# Of fio's terse line, KiB a second of reads (7) or of writes (48).
load --rw="$rw" --bs="$block" --iodepth="$depth" --time_based --runtime=4 --ramp_time=1 |
    awk -F ';' '$1 == 3 { printf "{\"metric\":\"rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", ($7 + $48) * 1024; n++ } END { exit !n }'

now() { date +%s%N; }
case $rw in
read) set -- "$uri" null: ;;
*)
    head -c "$bytes" /dev/urandom >"$scratch/source"
    set -- "$scratch/source" "$uri"
    ;;
esac
begun=$(now)
nbdcopy --connections=1 "$@"
awk -v ns=$(($(now) - begun)) -v bytes=$bytes 'BEGIN { printf "{\"metric\":\"nbdcopy.rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", bytes / ns * 1e9 }'
