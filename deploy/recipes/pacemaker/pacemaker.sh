#!/bin/sh
# Puts this node of a Pacemaker cluster into standby before a scheduled event, so that its resources
# move, and takes it out of standby afterwards, unless somebody else has put it there.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   PACEMAKER_NODE  the name of this node, as crm_node -n shows it
set -eu
: "${PACEMAKER_NODE:?}"
# Pacemaker takes each word for "yes" that means it, and people's tools write "on" or "true".
OURS=yes

ask() { timeout --foreground 12 "$@"; }
standby() { ask crm_attribute -N "$PACEMAKER_NODE" -n standby "$@"; }

# Sets `own`, the line of this node, and what is amiss: a node that is `missing`, a resource that is
# `down` everywhere though nobody has stopped it.
look() {
    cluster=$(ask crm_mon -1 --inactive --output-as=xml) || return 1
    nodes=$(echo "$cluster" | grep '<node .* online=') || return 1
    own=$(echo "$nodes" | grep -F "name=\"$PACEMAKER_NODE\"" || true)
    fit='online="true" standby="false" standby_onfail="false" maintenance="false" pending="false" unclean="false"'
    missing=$(echo "$nodes" | grep -vF "name=\"$PACEMAKER_NODE\"" | grep -vF "$fit" | names name)
    up=$(echo "$cluster" | grep '<resource .* active="true"' | names id)
    down=
    for each in $(echo "$cluster" | grep '<resource ' | grep -v 'target_role="[Ss]topped"' | names id); do
        echo "$up" | grep -qxF "$each" || down="$down $each"
    done
}
names() { sed "s/.*<[a-z]* .*$1=\"\([^\":]*\)[\":].*/\1/; s/.* $1=\"\([^\":]*\).*/\1/" | sort -u; }
has() { echo "$own" | grep -qF "$1"; }
amiss() {
    why=
    [ -z "$missing$down" ] || why="the cluster is one short already: ${missing:-no node runs$down}"
    echo "$cluster" | grep -q '<current_dc .*with_quorum="true"' || why="the cluster has no quorum"
    ! echo "$cluster" | grep -q 'maintenance-mode="true"' || why="the cluster is in maintenance"
    [ -n "$why" ]
}

prepare() {
    look || later "the cluster does not answer"
    [ -n "$own" ] || refuse "the cluster has no node $PACEMAKER_NODE"
    [ "$(echo "$nodes" | wc -l)" -gt 1 ] || refuse "a cluster of one can spare no node"
    ! amiss || has 'standby="true"' || later "$why"
    mark # also where it is in standby already: that may be for another event
    has 'standby="true"' || standby -v "$OURS" >/dev/null ||
        later "this node cannot be put into standby"
    ask crm_resource --wait --timeout=10s >/dev/null 2>&1 || true # is_empty is what counts
    within 40 is_empty || later "still on this node: resources that do not move"
    # One node at a time: if another one went at the same moment, both step back and come again. So
    # does one whose resources run nowhere without it.
    ! amiss || { back || true; later "$why"; }
}
is_empty() { look && has 'standby="true"' && has 'resources_running="0"'; }
is_ours() { [ "$(standby -G -q 2>/dev/null)" = "$OURS" ]; }
back() { ! is_ours || standby -D >/dev/null; }

recover() {
    within 40 is_member || again "this node is no member of the cluster"
    back || again "this node cannot be taken out of standby"
    within 20 is_back || again "this node is not back 20 s after its standby ended"
    ask crm_resource --wait --timeout=10s >/dev/null 2>&1 || again "resources still move"
}
is_member() { look && has 'online="true"' && has 'pending="false"' && has 'unclean="false"'; }
is_back() { is_member && { has 'standby="false"' || ! is_ours; }; }

. "${0%/*}/recipe.sh"
