# shellcheck shell=sh disable=SC2154 # The caller sets the port.
# Sourced by the scripts that compare NBD servers. `serve SERVER...` starts one for $port, waits until it responds at $uri, sets $server to
# its process ID, and ends it with the script. NAME is the name of its export, if not the default. PIDFILE is the file to which a server
# that daemonises writes its process ID.
#
# The server is ended however the script ends, also by Ctrl-C: one that is left behind would keep the port, and the next script's client
# would ask it for a disk that no longer exists.
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

# A server writes the file once it is in the background, which may take a moment.
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
    # The port is free once the server has exited.
    for _ in $(seq 100); do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
}
