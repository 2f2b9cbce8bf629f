#!/bin/sh
# Puts this RabbitMQ node into maintenance before a scheduled event, so that leaders and clients
# move to other nodes, and revives it afterwards. For RabbitMQ 3.8 or later.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   RABBITMQ_NODE  the name of this node, such as rabbit@mq-1
#   RABBITMQ_BIN   where the tools are
set -eu
: "${RABBITMQ_NODE:?}"
PATH=${RABBITMQ_BIN:+$RABBITMQ_BIN:}$PATH

# Each tool is an Erlang VM of its own: a very busy machine needs half a minute to start one.
tool() { # TOOL COMMAND...
    name=$1
    shift
    timeout --foreground 40 "$name" -q -n "$RABBITMQ_NODE" "$@"
}

# Sets `status`, as this node sees the cluster.
look() { status=$(tool rabbitmqctl cluster_status --formatter json); }
missing() { # the other nodes that do not run, are in maintenance, or do not say that they are not
    echo "$status" | jq -r --arg me "$RABBITMQ_NODE" '. as $all | .disk_nodes - [$me] |
        map(select(. as $node | ($all.running_nodes | index($node) | not) or
            $all.maintenance_status[$node] != "not under maintenance")) | join(", ")'
}

# One node at a time: each one that goes writes the time into a global parameter of its own, and
# steps back before it drains anything if another one has done so. It counts for an hour. Two that
# drain at once leave the queues without a leader, and `revive` does not bring one back.
take_turn() {
    put_turn "$(date +%s)" || later "the turn cannot be taken"
    turns=$(tool rabbitmqctl list_global_parameters --formatter json) ||
        later "the turn cannot be read"
    holder=$(echo "$turns" | jq -r --arg me "seb-turn-$RABBITMQ_NODE" '[.[] |
        select((.name | startswith("seb-turn-")) and .name != $me) |
        select((.value | tonumber) > now - 3600) | .name[9:]] | join(", ")')
    [ -z "$holder" ] || give_way "it is the turn of $holder"
}
put_turn() { tool rabbitmqctl set_global_parameter "seb-turn-$RABBITMQ_NODE" "$1" >/dev/null; }
give_way() {
    put_turn 0 || true
    later "$1"
}

prepare() {
    look || later "this node does not answer"
    [ -z "$(missing)" ] || later "the cluster is one short already: $(missing)"
    [ "$(echo "$status" | jq '.disk_nodes | length')" -gt 2 ] ||
        refuse "a cluster of fewer than three can spare no node"
    tool rabbitmq-queues check_if_node_is_quorum_critical >/dev/null ||
        later "the cluster is short already: a queue would lose its quorum without this node"
    mark
    take_turn
    tool rabbitmq-upgrade drain >/dev/null || later "this node cannot be drained"
    look || later "this node does not answer"
    [ -z "$(missing)" ] || { # another one went meanwhile, and not because of a recipe
        tool rabbitmq-upgrade revive >/dev/null || true
        give_way "the cluster is one short already: $(missing)"
    }
}

recover() {
    tool rabbitmqctl await_startup --timeout 35 >/dev/null || again "this node does not start"
    tool rabbitmq-upgrade revive >/dev/null || again "this node cannot be revived"
    tool rabbitmq-upgrade await_online_quorum_plus_one -t 35 >/dev/null ||
        again "a queue has no spare member"
    put_turn 0 || again "the turn cannot be given back"
}

. "${0%/*}/recipe.sh"
