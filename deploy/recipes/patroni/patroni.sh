#!/bin/sh
# Hands the leadership of a PostgreSQL cluster over and stops this member before a scheduled event,
# and starts it again afterwards, over Patroni's REST API.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   PATRONI_NAME    the name of this member
#   PATRONI_SELF    the URL of this member's REST API
#   PATRONI_OTHERS  those of all other members, with spaces between them
#   PATRONI_CURL    a file of options for curl, such as `user = "name:password"`; it can be private
#   PATRONI_UNIT    the name of its service
set -eu
: "${PATRONI_NAME:?}" "${PATRONI_SELF:?}" "${PATRONI_OTHERS:?}" "${PATRONI_UNIT:=patroni}"

api() { # SECONDS METHOD URL [OPTION OF CURL]...
    seconds=$1 method=$2 url=$3
    shift 3
    timeout --foreground "$((seconds + 2))" curl ${PATRONI_CURL:+-K "$PATRONI_CURL"} \
        -fsS -m "$seconds" -X "$method" "$url" "$@"
}
answers() { api 5 GET "$1" >/dev/null 2>&1; }
service() { timeout --foreground 40 systemctl --no-ask-password "$1" "$PATRONI_UNIT"; }
of_cluster() { echo "$cluster" | jq -r --arg me "$PATRONI_NAME" "$1"; }

# Sets `cluster`, as a member sees it, and `via`, the URL of that member.
look() {
    for via in $PATRONI_OTHERS; do
        cluster=$(api 5 GET "$via/cluster") && return 0
    done
    return 1
}

# One member at a time: each one that goes writes its name and the time into the cluster's own
# configuration, and steps back if it then finds another name there. A name counts for an hour.
take_turn() {
    put_turn "$(date +%s)" || later "the turn cannot be taken"
    config=$(api 5 GET "$via/config") || later "the turn cannot be read"
    holder=$(echo "$config" | jq -r --arg me "$PATRONI_NAME" '[.seb_turn // {} | to_entries[] |
        select(.key != $me and .value > now - 3600) | .key] | join(", ")')
    [ -z "$holder" ] || { put_turn null || true; later "it is the turn of $holder"; }
}
put_turn() { api 10 PATCH "$via/config" -d "{\"seb_turn\": {\"$PATRONI_NAME\": $1}}" >/dev/null; }

prepare() {
    look || later "the cluster is short already: no other member answers"
    for url in $PATRONI_OTHERS; do
        answers "$url/health" || later "the cluster is one short already: $url does not answer"
    done
    fit=$(of_cluster '[.members[] | select(.name != $me and (.state | IN("running", "streaming"))
        and (.role == "leader" or ((.lag | type) == "number" and .lag < 16777216)))] | length')
    [ "$fit" = "$(echo "$PATRONI_OTHERS" | wc -w)" ] ||
        later "the cluster is one short already: a replica does not run or lags by 16 MB"
    [ "$(of_cluster '.pause // false')" = false ] || later "Patroni is paused"
    mark
    take_turn
    if [ "$(of_cluster '.members[] | select(.role == "leader") | .name')" = "$PATRONI_NAME" ]; then
        heir=$(of_cluster '[.members[] | select(.name != $me)] |
            sort_by([.role != "sync_standby", .lag])[0].name')
        api 35 POST "$via/switchover" -d "{\"leader\": \"$PATRONI_NAME\", \"candidate\": \"$heir\"}" \
            >/dev/null || later "the leadership cannot be handed over to $heir"
    fi
    within 15 another_leads || later "no other member leads"
    # Whoever reads from a member that stands still, or waits for its synchronous copy, loses
    # seconds; from one that is stopped they move on at once.
    service stop || later "$PATRONI_UNIT cannot be stopped"
}
another_leads() {
    for url in $PATRONI_OTHERS; do
        answers "$url/primary" && return 0
    done
    return 1
}

recover() {
    service start || again "$PATRONI_UNIT cannot be started"
    within 60 is_back || again "this member is no replica without lag 60 s after its start"
    look || again "no other member answers"
    put_turn null || again "the turn cannot be given back"
}
is_back() { answers "$PATRONI_SELF/replica?lag=1MB" || answers "$PATRONI_SELF/primary"; }

. "${0%/*}/recipe.sh"
