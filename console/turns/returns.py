"""Which VMs of a turn are no longer away, and which of those rest first.

Each function yields a VM's part of a turn, and whether its rest is over. If it is not, its rest
begins now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from console.turns.plan import Back
from console.turns.prepared import has_recovered, prepares_nothing
from console.turns.reading import Reading
from console.turns.situation import Holder, Turn
from console.turns.waiting import waits_for_room

ANSWER_SECONDS: Final = 120.0
"""A VM that has not followed a command to prepare after this time will not follow it any more."""


def returns(turn: Turn, reading: Reading) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs of a turn that are no longer away. While a VM may still follow a command, yield
    nothing: the event could come back.
    """
    situation = reading.situation
    if reading.now < situation.followed_until.get(turn.event_key, 0.0):
        return
    for holder in turn.still_away:
        if holder.vm_id not in situation.vms:  # retired: no longer a member
            yield Back(event_key=turn.event_key, vm_id=holder.vm_id), True
    yield from _after_the_event(turn, reading)
    yield from _freed(turn, reading)
    yield from _unnamed(turn, reading)


def _after_the_event(turn: Turn, reading: Reading) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs that were heard after the end of their event and have recovered."""
    if reading.event_of(turn) is not None or turn.over_at is None:
        return
    for holder in turn.still_away:
        vm = reading.situation.vms.get(holder.vm_id)
        if vm is None or not vm.is_heard:
            continue
        if vm.heard_at >= turn.over_at and has_recovered(vm, turn):
            yield from _rested(holder, turn, reading)


def _freed(turn: Turn, reading: Reading) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs that may leave a turn early, because it has failed or because there is no room
    for its VMs any more: turns must not wait for each other. Each of them has recovered, or has
    prepared nothing and follows no command any more.
    """
    event = reading.event_of(turn)
    if event is None or event.status != "Scheduled":
        return
    if turn.state != "failed" and not waits_for_room(turn, event, reading):
        return
    if event.may_begin or event.approval in ("open", "confirmed"):
        return
    for holder in turn.still_away:
        vm = reading.situation.vms.get(holder.vm_id)
        if vm is None or not vm.is_heard or not has_recovered(vm, turn):
            continue
        if turn.state == "failed" and vm.heard_at < turn.since:
            continue  # Azure may have taken it by an approval whose answer never came
        if vm.preparation(turn.event_key) is None:
            if prepares_nothing(vm) or vm.heard_at >= turn.since + ANSWER_SECONDS:
                yield Back(event_key=turn.event_key, vm_id=holder.vm_id), True
        else:
            yield from _rested(holder, turn, reading)


def _unnamed(turn: Turn, reading: Reading) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs that a changed event no longer names and that are not away: they have
    recovered, or have prepared nothing until the last command expired.
    """
    event = reading.event_of(turn)
    if turn.state not in ("preparing", "failed") or event is None:
        return
    for holder in turn.still_away:
        vm = reading.situation.vms.get(holder.vm_id)
        if holder.vm_id in event.named or vm is None or not vm.is_heard:
            continue
        if vm.preparation(event.key) is not None:
            if has_recovered(vm, turn):
                yield from _rested(holder, turn, reading)
        elif not vm.prepares or vm.heard_at >= turn.since + ANSWER_SECONDS:
            yield Back(event_key=turn.event_key, vm_id=holder.vm_id), True


def _rested(holder: Holder, turn: Turn, reading: Reading) -> Iterator[tuple[Back, bool]]:
    """Yield a VM that has recovered. While its rest goes on, yield nothing."""
    back = Back(event_key=turn.event_key, vm_id=holder.vm_id)
    since = reading.now if holder.ready_at is None else holder.ready_at
    if reading.now - since >= _rest(holder, reading):
        yield back, True
    elif holder.ready_at is None:
        yield back, False


def _rest(holder: Holder, reading: Reading) -> float:
    """Return the longest rest of a VM's groups, in seconds. Both the groups in which it took its
    turn and its groups of now count, because the settings may have renamed a group since.
    """
    groups = reading.situation.groups
    vm = reading.situation.vms.get(holder.vm_id)
    keys = holder.groups | (vm.groups if vm else frozenset())
    return max((g.rule.rest for key in keys if (g := groups.get(key))), default=0.0)
