#!/bin/sh
# Drains this Slurm node before a scheduled event, waits until no job runs on it, and resumes it
# afterwards, unless somebody else has drained it.
# It is for the program sink of the bridge; README.md beside it has the steps.
#
#   SLURM_NODE     the name of this node in Slurm
#   SLURM_LEAST    how many other nodes must be able to run jobs, in each partition of this node
#   SLURM_REQUEUE  so many seconds before the event, requeue the jobs that may be; never unless set
#
# Only an administrator of Slurm may drain, resume and requeue. So seb-slurm@.service runs this as
# root with one word: drain, resume or requeue.
set -eu
: "${SLURM_NODE:?}" "${SLURM_LEAST:=1}"
OURS="seb: "

ask() { timeout --foreground 12 "$@"; }
jobs() { ask squeue -haw "$SLURM_NODE" -t R,S,ST,CF,CG -o %i; }

case ${1:-} in
drain) exec scontrol update "nodename=$SLURM_NODE" state=drain "reason=${OURS}scheduled event" ;;
resume) exec scontrol update "nodename=$SLURM_NODE" state=resume ;;
requeue)
    for job in $(jobs); do
        scontrol requeue "$job" || true # one that may not be runs on
    done
    exit 0
    ;;
esac

act() { timeout --foreground 30 systemctl --no-ask-password start "seb-slurm@$1"; }

# Sets what the controller says: `state` and `reason` of this node, and the partitions that are
# `short`. A state that ends with * means that the node does not answer.
look() {
    nodes=$(ask sinfo -haN -o '%R %N %T %E') || return 1
    own=$(echo "$nodes" | awk -v me="$SLURM_NODE" '$2 == me {said = $0} END {print said}')
    state=$(echo "$own" | cut -d' ' -f3) reason=$(echo "$own" | cut -d' ' -f4-)
    # ~ and #: a node that Slurm starts when it needs it.
    short=$(echo "$nodes" | awk -v me="$SLURM_NODE" -v least="$SLURM_LEAST" '
        $2 == me {own[$1]; next}
        $3 ~ /^(idle|mixed|allocated|completing|planned)[-~#]?$/ {fit[$1]++}
        END {for (each in own) if (fit[each] < least) print each}')
}
is_away() { case $state in drain* | down* | fail*) ;; *) return 1 ;; esac }
is_ours() { case $reason in "$OURS"*) ;; *) return 1 ;; esac }
has_gone() { look && is_away; }

prepare() {
    look || later "the controller does not answer"
    [ -n "$state" ] || refuse "Slurm has no node $SLURM_NODE"
    if ! is_away || is_ours; then # what somebody else has set stays as it is
        is_away || [ -z "$short" ] || later "short of nodes already: partition $short"
        mark
        is_away || act drain || later "this node cannot be drained"
        within 10 has_gone || later "this node is not drained 10 s after it was asked to"
        # One node at a time: if another one went at the same moment, both step back and come again.
        [ -z "$short" ] || { act resume || true; later "short of nodes already: partition $short"; }
    fi
    # What still runs at the end would die with the VM. The node stays drained: so would a new job.
    within 20 is_free || later "still on this node: job $(echo "$running" | paste -sd' ')"
}
is_free() {
    running=$(jobs) || { running="unknown, the controller does not answer"; return 1; }
    [ -n "$running" ] || return 0
    [ "${SLURM_REQUEUE:-}" ] && [ "$SEB_EVENT_IMPACT" != pause ] || return 1
    left=$(($(date -d "${SEB_EVENT_NOT_BEFORE:-now}" +%s) - $(date +%s)))
    [ "$left" -gt "$SLURM_REQUEUE" ] || act requeue || true
    return 1
}

recover() {
    # The node's own slurmd, which scontrol finds by this variable.
    within 30 ask env "SLURMD_NODENAME=$SLURM_NODE" scontrol show slurmd >/dev/null 2>&1 ||
        again "slurmd does not answer"
    look || again "the controller does not answer"
    ! is_away || is_ours || return 0 # somebody else has drained it meanwhile
    ! is_ours || act resume || again "this node cannot be resumed"
    within 30 is_back || again "this node takes no jobs 30 s after it was resumed: $state $reason"
}
is_back() { look && ! is_away && case $state in *[*] | unknown) return 1 ;; esac }

. "${0%/*}/recipe.sh"
