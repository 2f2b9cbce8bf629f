#!/bin/sh
# Stops this member of an etcd cluster before a scheduled event, and starts it again afterwards.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   ETCD_ENDPOINTS  the client URLs of all members, with commas between them
#   ETCD_SELF       the client URL that this member advertises
#   ETCD_UNIT       the name of its service
# For certificates, etcdctl itself knows variables: ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY.
set -eu
: "${ETCD_ENDPOINTS:?}" "${ETCD_SELF:?}" "${ETCD_UNIT:=etcd}"
export ETCDCTL_API=3
unset ETCDCTL_ENDPOINTS # etcdctl refuses to have it twice

at() { # URLS COMMAND...
    urls=$1
    shift
    timeout --foreground 10 etcdctl --dial-timeout=2s --command-timeout=5s --endpoints="$urls" "$@"
}
etcd() { at "$ETCD_ENDPOINTS" "$@"; }
answers() { at "$1" endpoint health >/dev/null 2>&1; }
service() { timeout --foreground 40 systemctl --no-ask-password "$1" "$ETCD_UNIT"; }

# Sets what the cluster says: `name` of this member, and the URLs of the `others`.
look() {
    members=$(etcd member list) || return 1
    is_self='index("," $5 ",", "," self ",")'
    name=$(echo "$members" | awk -F', ' -v self="$ETCD_SELF" "$is_self {print \$3}")
    others=$(echo "$members" | awk -F', ' -v self="$ETCD_SELF" "!$is_self {print \$5 ? \$5 : \"-\"}")
}

# One member at a time: the cluster itself keeps whose turn it is, and forgets it after an hour.
take_turn() {
    lease=$(etcd lease grant 3600 | awk '{print $2}')
    printf 'create("seb/turn") = "0"\n\nput seb/turn %s --lease=%s\n\n\n' "$name" "$lease" |
        etcd txn >/dev/null || later "the turn cannot be taken"
    holder=$(etcd get --print-value-only seb/turn) || later "the turn cannot be read"
    [ "$holder" = "$name" ] || later "it is the turn of $holder"
}

prepare() {
    look || later "the cluster does not answer: without this member nothing would be better"
    [ -n "$name" ] || refuse "no member advertises ETCD_SELF: $ETCD_SELF"
    [ "$(echo "$others" | wc -w)" -ge 2 ] || refuse "a cluster of fewer than three can spare no member"
    for url in $others; do
        answers "${url%%,*}" || later "the cluster is one short already: $url does not answer"
    done
    mark
    take_turn
    # A member that is stopped hands its leadership over to any other; this one is known to answer.
    state=$(at "$ETCD_SELF" endpoint status 2>/dev/null) || state=
    if [ "$(echo "$state" | awk -F', ' '{print $5}')" = true ]; then
        url=$(echo "$others" | head -n 1)
        heir=$(at "${url%%,*}" endpoint status | awk -F', ' '{print $2}')
        at "$ETCD_SELF" move-leader "$heir" >/dev/null || later "$url does not take the leadership"
    fi
    # A client that waits for a member which stands still loses seconds; from one that is stopped it
    # moves on at once.
    service stop || later "$ETCD_UNIT cannot be stopped"
    for url in $others; do
        answers "${url%%,*}" || { service start || true; later "without this member, $url does not answer"; }
    done
}

recover() {
    service start || again "$ETCD_UNIT cannot be started"
    within 30 answers "$ETCD_SELF" || again "this member does not answer 30 s after its start"
    look || again "the cluster does not answer"
    holder=$(etcd get --print-value-only seb/turn) || again "the turn cannot be read"
    [ "$holder" != "$name" ] || etcd del seb/turn >/dev/null || again "the turn cannot be given back"
}

. "${0%/*}/recipe.sh"
