#!/bin/sh
# Hands the master's role over without losing a write and stops this Redis server before a scheduled
# event, and starts it again afterwards. For Redis 6.2 or later with Sentinel.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   REDIS_SELF           host:port of this server, as Sentinel shows it
#   REDIS_OTHERS         host:port of all other servers, with spaces between them
#   REDIS_SENTINEL       host:port of a Sentinel, best of this VM's own
#   REDIS_MASTER         the name that Sentinel has for the master
#   REDIS_PASSWORD_FILE  a file with the password of the servers and Sentinels, if they have one
#   REDIS_UNIT           the name of the server's service
set -eu
: "${REDIS_SELF:?}" "${REDIS_OTHERS:?}" "${REDIS_SENTINEL:=127.0.0.1:26379}"
: "${REDIS_MASTER:=mymaster}" "${REDIS_UNIT:=redis-server}"
[ -z "${REDIS_PASSWORD_FILE:-}" ] || REDISCLI_AUTH=$(cat "$REDIS_PASSWORD_FILE")
export REDISCLI_AUTH="${REDISCLI_AUTH:-}"
[ -n "$REDISCLI_AUTH" ] || unset REDISCLI_AUTH

at() { # HOST:PORT COMMAND...
    place=$1
    shift
    timeout --foreground 2 redis-cli -h "${place%:*}" -p "${place##*:}" "$@" | tr -d '\r'
}
service() { timeout --foreground 40 systemctl --no-ask-password "$1" "$REDIS_UNIT"; }
master() { at "$REDIS_SENTINEL" sentinel get-master-addr-by-name "$REDIS_MASTER" | paste -sd: -; }
fact() { at "$1" info replication | sed -n "s/^$2://p"; } # HOST:PORT NAME

prepare() {
    master=$(master)
    [ -n "$master" ] || later "Sentinel at $REDIS_SENTINEL does not answer, or knows no $REDIS_MASTER"
    at "$REDIS_SENTINEL" info sentinel | grep -q '^sentinel_tilt:0' ||
        later "Sentinel at $REDIS_SENTINEL does nothing for 30 s: it stood still, or its clock jumped"
    down=$(at "$REDIS_SENTINEL" sentinel master "$REDIS_MASTER" | sed -n '/^down-after-/{n;p}')
    [ "${down:-0}" -ge 5000 ] ||
        later "Sentinel calls a server down after ${down:-?} ms, and writes may wait 4 s: 5000 is the least"
    all=$(($(echo "$REDIS_OTHERS" | wc -w) + 1))
    quorum=$(at "$REDIS_SENTINEL" sentinel ckquorum "$REDIS_MASTER")
    [ "${quorum#"OK $all usable"}" != "$quorum" ] || later "Sentinels are one short already: $quorum"
    in_touch ||
        later "the servers are one short already: $lost is not a replica in touch with its master"
    mark
    take_turn
    [ "$master" != "$REDIS_SELF" ] || hand_over
    within 15 in_touch || later "$lost does not follow the new master"
    service stop || later "$REDIS_UNIT cannot be stopped"
}
in_touch() { # with the master: Sentinel and all other servers; sets `lost`
    lost=Sentinel
    [ "$(master)" = "$master" ] || return 1
    for lost in $REDIS_OTHERS; do
        [ "$lost" = "$master" ] || [ "$(fact "$lost" master_link_status)" = up ] || return 1
    done
}

# One server at a time: a key at the master keeps whose turn it is, and ends after an hour.
take_turn() {
    at "$master" set seb:turn "$REDIS_SELF" nx ex 3600 >/dev/null
    holder=$(at "$master" get seb:turn)
    [ "$holder" = "$REDIS_SELF" ] || later "it is the turn of ${holder:-nobody: $master takes no writes}"
}

# Sentinel alone would lose what is written between the promotion and the end of the old master.
# So writes wait meanwhile; if this is killed, they wait no longer than 15 s. No failover may come
# once they go on: one that Sentinel has accepted is taken back, and they wait for less time than
# it takes until the other Sentinels, whose messages wait too, call this server down.
hand_over() {
    at "$REDIS_SELF" client pause 15000 write >/dev/null
    within 1 copied || give_up "no replica has every write within 1 s"
    [ "$(at "$REDIS_SENTINEL" sentinel failover "$REDIS_MASTER")" = OK ] || take_back "Sentinel refuses"
    within 3 has_moved || take_back "no other server is the master within 3 s"
    at "$REDIS_SELF" replicaof "${master%:*}" "${master##*:}" >/dev/null
    at "$REDIS_SELF" config rewrite >/dev/null
    at "$REDIS_SELF" client unpause >/dev/null
}
copied() {
    written=$(fact "$REDIS_SELF" master_repl_offset)
    for other in $REDIS_OTHERS; do
        [ "$(fact "$other" slave_repl_offset)" = "$written" ] || return 1
    done
}
has_moved() {
    master=$(master)
    [ "$master" != "$REDIS_SELF" ] && [ "$(fact "$master" role)" = master ]
}
take_back() {
    at "$REDIS_SENTINEL" sentinel reset "$REDIS_MASTER" >/dev/null # ends a failover, too
    for other in $REDIS_OTHERS; do # one that was promoted, and of which no Sentinel knows it yet
        [ "$(fact "$other" role)" != master ] ||
            at "$other" replicaof "${REDIS_SELF%:*}" "${REDIS_SELF##*:}" >/dev/null
    done
    give_up "$1"
}
give_up() {
    at "$REDIS_SELF" client unpause >/dev/null
    later "$1"
}

recover() {
    service start || again "$REDIS_UNIT cannot be started"
    within 60 is_back || again "this server is not a replica in touch with its master 60 s after its start"
    [ "$(at "$master" get seb:turn)" != "$REDIS_SELF" ] || at "$master" del seb:turn >/dev/null
}
is_back() {
    master=$(master)
    [ "$(fact "$master" role)" = master ] || return 1
    [ "$master" = "$REDIS_SELF" ] || [ "$(fact "$REDIS_SELF" master_link_status)" = up ]
}

. "${0%/*}/recipe.sh"
