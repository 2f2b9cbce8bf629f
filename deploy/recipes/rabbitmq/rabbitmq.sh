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

tool() { # SECONDS TOOL COMMAND...
    seconds=$1 name=$2
    shift 2
    timeout --foreground "$seconds" "$name" -q -n "$RABBITMQ_NODE" "$@"
}

# Sets `status`, as this node sees the cluster.
look() { status=$(tool 20 rabbitmqctl cluster_status --formatter json); }
missing() { # the other nodes that do not run, or are in maintenance
    echo "$status" | jq -r --arg me "$RABBITMQ_NODE" '. as $all | .disk_nodes - [$me] |
        map(select(. as $node | ($all.running_nodes | index($node) | not) or
            ($all.maintenance_status[$node] // "") == "marked for maintenance")) | join(", ")'
}

prepare() {
    look || later "this node does not answer"
    [ -z "$(missing)" ] || later "the cluster is one short already: $(missing)"
    [ "$(echo "$status" | jq '.disk_nodes | length')" -gt 2 ] ||
        refuse "a cluster of fewer than three can spare no node"
    tool 20 rabbitmq-queues check_if_node_is_quorum_critical >/dev/null ||
        later "the cluster is short already: a queue would lose its quorum without this node"
    mark
    tool 40 rabbitmq-upgrade drain >/dev/null || later "this node cannot be drained"
    # One node at a time: if another one went at the same moment, both step back and come again.
    look || later "this node does not answer"
    [ -z "$(missing)" ] || {
        tool 30 rabbitmq-upgrade revive >/dev/null
        later "the cluster is one short already: $(missing)"
    }
}

recover() {
    tool 40 rabbitmqctl await_startup --timeout 35 >/dev/null || again "this node does not start"
    tool 30 rabbitmq-upgrade revive >/dev/null || again "this node cannot be revived"
    tool 40 rabbitmq-upgrade await_online_quorum_plus_one -t 35 >/dev/null ||
        again "a queue has no spare member"
}

. "${0%/*}/recipe.sh"
