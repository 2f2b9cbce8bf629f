#!/bin/sh
# Takes this VM out of service before a scheduled event, and puts it back afterwards.
# It is for the program sink: see docs/prepare-and-recover.md. Under systemd it needs drain.conf.
#
# The VM is out of service while DRAIN_DIR contains a file: let the address that your load balancer
# probes answer 503 then. There is one file per event, because events can overlap, and the end of
# one must not undo the preparation for another. Every step can be repeated: the bridge delivers
# each record at least once.
#
#   DRAIN_DIR      must be writable. In /run, the VM serves again after any reboot; on disk, only
#                  after the end of the event
#   DRAIN_PORT     wait until all connections to this port are closed; empty: do not wait
#   DRAIN_SECONDS  how long to wait at most; must be less than the sink's TIMEOUT
set -eu

DRAIN_DIR=${DRAIN_DIR:-/run/drain}
DRAIN_PORT=${DRAIN_PORT:-}
DRAIN_SECONDS=${DRAIN_SECONDS:-50}

mark() {
    mkdir -p "$DRAIN_DIR"
    : >"$DRAIN_DIR/$SEB_EVENT_ID"
}

# It fails if connections are left: then the event is not approved, and this is run again.
await_silence() {
    [ -n "$DRAIN_PORT" ] || return 0
    waited=0
    # A separate assignment: if ss is missing, the script ends, and does not continue as if there
    # were no connections.
    connections=$(ss -Htn state established "( sport = :$DRAIN_PORT )")
    while [ -n "$connections" ]; do
        if [ "$waited" -ge "$DRAIN_SECONDS" ]; then
            echo "port $DRAIN_PORT still has connections after $waited s" >&2
            exit 1
        fi
        sleep 1
        waited=$((waited + 1))
        connections=$(ss -Htn state established "( sport = :$DRAIN_PORT )")
    done
}

# A record about the bridge itself.
[ -n "$SEB_EVENT_ID" ] || exit 0

# The mark is removed before anything else is decided: it must never stay. An event that goes on
# without this VM is over for it.
if [ "$SEB_EVENT_TRANSITION" = ended ] || [ "$SEB_EVENT_AFFECTS_THIS_VM" != true ]; then
    rm -f "$DRAIN_DIR/$SEB_EVENT_ID"
    exit 0
fi

# A pause of some seconds does not break connections; draining would cost more than the event.
case $SEB_EVENT_IMPACT in
none | pause) exit 0 ;;
esac

case $SEB_EVENT_TRANSITION in
scheduled | updated)
    mark
    await_silence
    ;;
started)
    mark # it is too late to wait
    ;;
esac
