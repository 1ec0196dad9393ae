# shellcheck shell=sh disable=SC2154 # The port is its user's.
# Sourced by what compares NBD servers. `serve SERVER...` starts one for $port, waits until it answers at $uri, says who it is in $server,
# and ends it with the script. NAME is its export's, if not the default. PIDFILE is where one says who it is that goes into the
# background.
#
# It is ended however the script ends, also by Ctrl-C: one that is left behind keeps the port, and refuses the next one's client a disk
# that is no more.
serve() {
    if command -v ss >/dev/null && [ -n "$(ss -Hltn "sport = :$port")" ]; then
        echo "port $port is taken: end who listens there (ss -ltnp 'sport = :$port' says who)" >&2
        exit 1
    fi
    trap 'exit 1' HUP INT TERM
    trap end EXIT
    "$@" >/dev/null 2>&1 &
    server=$!
    if [ -n "${PIDFILE:-}" ]; then
        wait "$server"
        server=
        said
    fi
    uri=nbd://127.0.0.1:$port/${NAME:-}
    for _ in $(seq 100); do
        nbdinfo --size "$uri" >/dev/null 2>&1 && return
        sleep 0.05
    done
    nbdinfo --size "$uri"
}

# It says who it is when it is in the background, which may take a moment.
said() {
    for _ in $(seq 100); do
        [ -s "$PIDFILE" ] && break
        sleep 0.05
    done
    server=$(cat "$PIDFILE")
}

end() {
    trap - EXIT
    [ -n "${server:-}" ] || said
    kill "$server"
    # Its port is free when it is gone.
    for _ in $(seq 100); do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
}
