#!/bin/sh
# Takes this VM out of service before a scheduled event, and back into it afterwards.
# For the program sink: see docs/prepare-and-recover.md.
#
# The VM is out of service while DRAIN_DIR holds a file: have the endpoint that your load balancer
# probes answer 503 then. There is one file per event, because events overlap, and the end of one
# must not undo the preparation for another. Every step can be repeated: the bridge hands over each
# record at least once, and after a failure again.
#
#   DRAIN_DIR      must be writable, and on a file system that a reboot clears
#   DRAIN_PORT     wait until nobody is connected to this port; none: do not wait
#   DRAIN_SECONDS  wait no longer than this; must be less than the sink's TIMEOUT
set -eu

DRAIN_DIR=${DRAIN_DIR:-/run/drain}
DRAIN_PORT=${DRAIN_PORT:-}
DRAIN_SECONDS=${DRAIN_SECONDS:-50}

mark() {
    mkdir -p "$DRAIN_DIR"
    : >"$DRAIN_DIR/$SEB_EVENT_ID"
}

# Fails where connections are left: then the event is not approved, and this is run again.
await_silence() {
    [ -n "$DRAIN_PORT" ] || return 0
    waited=0
    # An assignment of its own, so that a missing ss ends the script and is not taken for silence.
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

# Unmarking comes before any other question: it must never be left out.
if [ "$SEB_EVENT_TRANSITION" = ended ]; then
    rm -f "$DRAIN_DIR/$SEB_EVENT_ID"
    exit 0
fi

# Another VM's event, or a record about the bridge itself.
[ "$SEB_EVENT_AFFECTS_THIS_VM" = true ] || exit 0

# A pause of seconds breaks no connection; to drain for it would cost more than the event.
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
