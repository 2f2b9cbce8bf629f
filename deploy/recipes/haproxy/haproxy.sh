#!/bin/sh
# Takes this web server out of HAProxy's pool before a scheduled event, and puts it back afterwards.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   HAPROXY_STATS    the statistics of each HAProxy as CSV, such as http://10.0.0.9:8404/stats;csv
#   HAPROXY_BACKEND  the name of the backend
#   HAPROXY_SERVER   the name of this server in it
#   DRAIN_FILE       while this file exists, the page that HAProxy checks answers 404
#   HAPROXY_CURL     a file of options for curl, such as `user = "name:password"`; it can be private
set -eu
: "${HAPROXY_STATS:?}" "${HAPROXY_BACKEND:?}" "${HAPROXY_SERVER:?}"
: "${DRAIN_FILE:=/run/seb-drain/draining}"

# Sets `pool`: a line for each server of the backend at each HAProxy: name, status, connections.
look() {
    pool=
    for url in $HAPROXY_STATS; do
        csv=$(timeout --foreground 8 curl ${HAPROXY_CURL:+-K "$HAPROXY_CURL"} -fsS -m 5 "$url") || return 1
        pool="$pool$(echo "$csv" | awk -F, -v backend="$HAPROXY_BACKEND" \
            '$1 == backend && $2 !~ /^(FRONT|BACK)END$/ {sub(" ", ":", $18); print $2, $18, $5}')
"
    done
}
own() { echo "$pool" | awk -v self="$HAPROXY_SERVER" '$1 == self'; }
missing() { # the servers that would not take over; "UP 1/2" is on its way down
    echo "$pool" | awk -v self="$HAPROXY_SERVER" 'NF && $1 != self && $2 !~ /^(UP|no:check)$/ {print $1 " is " $2}' |
        sort -u | paste -sd, -
}

prepare() {
    look || later "HAProxy does not answer"
    [ -n "$(own)" ] || refuse "no server of $HAPROXY_BACKEND is called $HAPROXY_SERVER"
    [ -z "$(missing)" ] || later "the pool is one short already: $(missing)"
    [ "$(echo "$pool" | awk 'NF {print $1}' | sort -u | wc -l)" -gt 1 ] || refuse "this is the only server"
    mark
    : >"$DRAIN_FILE"
    within 20 is_out || later "HAProxy still sends requests here"
    # One server at a time: if another one went at the same moment, both step back and come again.
    [ -z "$(missing)" ] || { rm -f "$DRAIN_FILE"; later "the pool is one short already: $(missing)"; }
    within 30 is_silent || later "connections are left: $(own | paste -sd, -)"
}
is_out() { look && [ -z "$(own | awk '$2 ~ /^UP/')" ]; }
is_silent() { look && [ -z "$(own | awk '$3 > 0')" ]; }

recover() {
    rm -f "$DRAIN_FILE"
    within 60 is_in || again "HAProxy does not send requests here 60 s after the end"
}
is_in() { look && [ -z "$(own | awk '$2 != "UP"')" ]; }

. "${0%/*}/recipe.sh"
