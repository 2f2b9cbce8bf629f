"""Which VMs of a turn are no longer away, and which of those rest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from console.turns.facts import Turn, TurnVm, VmFacts
from console.turns.reading import Reading, waits_for_room

ANSWER_SECONDS: Final = 120.0
"""A VM that has not followed a command to prepare after this time will not follow it any more."""
_REPORT_SECONDS: Final = 10.0
"""How long the reports of a VM that is heard again may take to arrive: its status comes first."""
_MAX_RUNS: Final = 5
"""How many runs of a bridge are known again, so that none of them begins the rest twice."""


def with_returns(turn: Turn, reading: Reading) -> Turn:
    """Return the turn with the VMs that are back, and with those whose rest begins or is
    interrupted.
    """
    return replace(
        turn,
        vms=tuple(
            part if part.back_at is not None else _with_return(part, turn, reading)
            for part in turn.vms
        ),
    )


def _with_return(part: TurnVm, turn: Turn, reading: Reading) -> TurnVm:
    vm = reading.facts.vms.get(part.vm_id)
    if vm is not None and (vm.contact in ("silent", "stopped") or vm.instance_id not in part.runs):
        part = replace(part, ready_at=None)  # its rest begins, or begins again once it is back
    if reading.now < reading.facts.followed_until.get(turn.event_key, 0.0):
        return part  # a VM may still follow a command: the event could come back
    if vm is None:  # retired: no longer a member
        return replace(part, back_at=reading.now)
    has_recovered = vm.is_heard_or_late and vm.has_recovered(turn.event_key)
    if not (has_recovered and _may_leave(vm, turn, reading)):
        return part
    rest = _rest_of(part, vm, turn, reading)
    if rest is None:
        return part
    since = reading.now if part.ready_at is None else part.ready_at
    if reading.now - since >= rest:
        return replace(part, back_at=reading.now)
    if vm.instance_id not in part.runs:
        part = replace(part, runs=(*part.runs, vm.instance_id)[-_MAX_RUNS:])
    return replace(part, ready_at=since)


def _rest_of(part: TurnVm, vm: VmFacts, turn: Turn, reading: Reading) -> float | None:
    """Return how many seconds a VM that has recovered rests; None while it may still follow a
    command.
    """
    event = reading.event_of(turn)
    may_have_posted = event is not None and event.approval == "failed"
    if event is None or may_have_posted or vm.preparation(turn.event_key) is not None:
        least = _REPORT_SECONDS if may_have_posted else 0.0
        return max(least, _rest_of_groups(part, vm, reading))
    # It has prepared nothing: it was not away, unless it still follows a command.
    if vm.prepares_nothing:
        return 0.0
    return _REPORT_SECONDS if vm.heard_at >= turn.since + ANSWER_SECONDS else None


def _may_leave(vm: VmFacts, turn: Turn, reading: Reading) -> bool:
    """Check whether a VM may leave a turn.

    One of these must hold:

    - it was heard after the end of the event,
    - the event has changed and no longer names it, by the VM's own report too,
    - the turn has failed, or
    - there is no room for the event's VMs any more: turns must not wait for each other.
    """
    event = reading.event_of(turn)
    if event is None or vm.vm_id not in event.named:
        # The report that is shown may be another VM's: the VM's own word counts for it.
        if turn.event_key in vm.reported:
            return False
        return event is not None or (turn.over_at is not None and vm.heard_at >= turn.over_at)
    has_begun = event.status != "Scheduled" or vm.vm_id in event.started_for
    if has_begun or event.may_begin or event.approval in ("open", "confirmed"):
        return False
    if turn.state == "failed":
        # Until it is heard, Azure may have taken it by an approval whose answer never came.
        return vm.heard_at >= turn.since
    return waits_for_room(turn, event, reading)


def longest_rest(turn: Turn, reading: Reading) -> float:
    """Return the longest rest of the VMs of a turn that have not come back, in seconds."""
    vms = reading.facts.vms
    rests = (_rest_of_groups(part, vms.get(part.vm_id), reading) for part in turn.still_away)
    return max(rests, default=0.0)


def _rest_of_groups(part: TurnVm, vm: VmFacts | None, reading: Reading) -> float:
    """Return the longest rest of a VM's groups, in seconds: of those in which it took its turn, and
    of those of now, since the settings may name them in another way.
    """
    groups = reading.facts.groups
    keys = part.groups if vm is None else part.groups | vm.groups
    return max((groups[key].settings.rest for key in keys if key in groups), default=0.0)
