# What the recipes share: each of them defines `prepare` and `recover`, and then reads this file.
# The bridge runs a recipe for each record of an event that names this VM, again and again until it
# ends with 0 or 65; docs/prepare-and-recover.md has the rules.
#
#   MARKS  a directory with one file for each event that this VM is prepared for: events can
#          overlap, and the end of one must not undo the preparation for another
set -eu
recipe=${0##*/}
: "${MARKS:=/var/lib/scheduled-events-bridge/recipe-${recipe%.sh}}"

# Say why, and be run again.
again() {
    echo "$1" >&2
    exit 75
}

# Say why, and give up: Azure starts the event at its time, without an approval.
refuse() {
    echo "$1" >&2
    exit 65
}

# Not now: be run again while there is time, and give up when Azure is about to start the event.
later() {
    due=$(date -d "${SEB_EVENT_NOT_BEFORE:-now}" +%s)
    [ "$((due - $(date +%s)))" -le 30 ] || again "$1"
    refuse "$1"
}

# within SECONDS COMMAND...: repeat it until it succeeds; 1 if it does not within that time.
within() {
    until_then=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$until_then" ] || return 1
        sleep 0.5
    done
}

# A recipe calls this before its first change: from now on, the end of the event brings the VM back.
mark() { : >"$MARKS/$SEB_EVENT_ID"; }

[ -n "${SEB_EVENT_ID:-}" ] || exit 0 # a record about the bridge itself
mkdir -p "$MARKS"
find "$MARKS" -type f -mtime +8 -delete # of events whose end never came
transition=$SEB_EVENT_TRANSITION
[ "${SEB_EVENT_AFFECTS_THIS_VM:-}" = true ] || transition=ended # for this VM it is over
case $transition:$SEB_EVENT_IMPACT in
ended:*)
    [ -e "$MARKS/$SEB_EVENT_ID" ] || exit 0
    [ -n "$(find "$MARKS" -type f ! -name "$SEB_EVENT_ID")" ] || recover
    rm "$MARKS/$SEB_EVENT_ID" # the last step: a run that is killed before it is repeated
    ;;
scheduled:none | updated:none) ;; # the VM notices nothing
scheduled:* | updated:*) prepare ;;
esac
