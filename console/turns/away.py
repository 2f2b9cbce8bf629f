"""Finds the VMs that are away in each group, and why: a pure function of one reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final, Literal

from console.fleet.values.keys import EventKey
from console.turns.facts import EventFacts, TurnFacts, VmFacts

STARTED = "Started"
SCHEDULED = "Scheduled"
_HEARTBEAT_SECONDS: Final = 60.0
"""A VM that is here is heard within this time of the start that another VM reports, also if their
clocks differ a little.
"""
AwayBecause = Literal["turn", "preparing", "started", "silent", "stopped"]
AWAY_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "turn": "has its turn",
        "preparing": "has prepared",
        "started": "its event has started",
        "silent": "is not heard",
        "stopped": "its bridge has stopped",
    }
)
"""Why a VM is away, in words, for the page and the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Why one VM is away in a group."""

    vm_id: str
    why: AwayBecause
    since: float
    event_key: EventKey | None = None
    is_certain: bool = True
    """Whether the console knows it; otherwise the VM may be away, and lists do not show it."""


def away_by_group(
    facts: TurnFacts, *, unsure_at: float | None = None
) -> dict[str, dict[str, Away]]:
    """Return, for each group, the VMs that are away, by vmId, each with the first reason that
    holds.

    With `unsure_at`, a time, a VM also counts as away if the console cannot know yet whether it is:
    a budget must count it.
    """
    found: dict[str, dict[str, Away]] = {key: {} for key in facts.groups}
    for turn in facts.turns.values():
        if not turn.is_held:
            continue
        for holder in turn.still_away:
            since = turn.since if turn.taken_at is None else turn.taken_at
            reason = Away(vm_id=holder.vm_id, why="turn", since=since, event_key=turn.event_key)
            vm = facts.vms.get(holder.vm_id)
            # Its groups when the turn was taken, and its groups now.
            for key in holder.groups | (vm.groups if vm else frozenset()):
                found.setdefault(key, {}).setdefault(holder.vm_id, reason)
    started = started_by_vm(facts, unsure_at=unsure_at)
    is_unsure = unsure_at is not None
    for vm in facts.vms.values():
        reason_now = _reason(vm, started, with_unsure=is_unsure)
        if reason_now is not None:
            for key in vm.groups:
                found.setdefault(key, {}).setdefault(vm.vm_id, reason_now)
    return found


def is_preparing(vm: VmFacts) -> EventKey | None:
    """Return the key of an event for which the VM has begun to prepare and has not recovered, the
    first by its id; None if there is none.
    """
    for event_key in sorted({each.event_key for each in vm.preparations}):
        newest = vm.preparation(event_key)
        if newest is not None and newest.state != "recovered":
            return event_key
    return None


def idle_in_turns(facts: TurnFacts) -> frozenset[str]:
    """Return the vmIds of the VMs that are away only because they hold turns, and have not begun to
    prepare: they come back soon if these turns fail, or have failed.
    """
    idle: set[str] = set()
    others = set(started_by_vm(facts))
    for turn in facts.turns.values():
        event = facts.events.get(turn.event_key)
        may_fail = (
            turn.state in ("preparing", "failed")
            and event is not None
            and not event.may_begin
            and event.approval not in ("open", "confirmed")
        )
        if turn.is_held:
            (idle if may_fail else others).update(turn.vm_ids)
    vms = facts.vms
    others |= {vm_id for vm_id in idle if vm_id in vms and _is_gone(vms[vm_id])}
    return frozenset(idle - others)


def started_by_vm(facts: TurnFacts, *, unsure_at: float | None = None) -> dict[str, EventFacts]:
    """Return, for each VM, the started event that names it, or the earliest of several. What a VM
    says of itself counts, whatever is shown of the event. With `unsure_at`, an event counts as
    started too if it may have begun by that time.
    """
    found: dict[str, EventFacts] = {}
    vms = facts.vms
    for event in sorted(facts.events.values(), key=lambda each: each.order, reverse=True):
        found |= dict.fromkeys(event.started_for.keys() & vms.keys(), event)
        for vm in (vms[vm_id] for vm_id in event.named if vm_id in vms):
            begun = event.status == STARTED or _may_have_begun(event, vm, unsure_at)
            if begun and event.counts_for(vm, vms):
                found[vm.vm_id] = event
    return found


def _is_gone(vm: VmFacts) -> bool:
    """Check whether a VM is not heard, or has begun to prepare."""
    return not vm.is_heard_or_late or is_preparing(vm) is not None


def _reason(vm: VmFacts, started: Mapping[str, EventFacts], *, with_unsure: bool) -> Away | None:
    preparing = is_preparing(vm)
    if preparing is not None:
        newest = vm.preparation(preparing)
        since = vm.heard_at if newest is None else newest.at
        return Away(vm_id=vm.vm_id, why="preparing", since=since, event_key=preparing)
    if vm.asked_for is not None:
        return Away(vm_id=vm.vm_id, why="turn", since=vm.heard_at, event_key=vm.asked_for)
    event = started.get(vm.vm_id)
    if event is not None:
        since = vm.heard_at if event.started_at is None else event.started_at
        is_certain = event.status == STARTED or vm.vm_id in event.started_for
        return Away(
            vm_id=vm.vm_id,
            why="started",
            since=since,
            event_key=event.key,
            is_certain=is_certain,
        )
    if vm.contact in ("silent", "stopped"):
        why: AwayBecause = "stopped" if vm.contact == "stopped" else "silent"
        return Away(vm_id=vm.vm_id, why=why, since=vm.contact_since)
    return _perhaps(vm) if with_unsure else None


def _perhaps(vm: VmFacts) -> Away | None:
    """Return why a VM may be away, though nothing is known that says so; None if it is there."""
    if vm.missed_end is not None:
        return Away(
            vm_id=vm.vm_id,
            why="started",
            since=vm.heard_at,
            event_key=vm.missed_end,
            is_certain=False,
        )
    if vm.may_have_unread or vm.contact in ("late", "learning"):
        return Away(vm_id=vm.vm_id, why="silent", since=vm.contact_since, is_certain=False)
    return None


def _may_have_begun(event: EventFacts, vm: VmFacts, unsure_at: float | None) -> bool:
    """Check whether an event that is shown as Scheduled may have begun by that time: a VM may have
    told Azure to start it, its time has passed, or another VM reports that it has started, and this
    one may not have been heard since.
    """
    if unsure_at is None or event.status != SCHEDULED:
        return False
    not_before = event.not_before
    is_past = not_before is not None and vm.heard_at < not_before <= unsure_at
    last_start = max(event.started_for.values(), default=-inf)
    is_reported = vm.heard_at <= last_start + _HEARTBEAT_SECONDS
    return is_past or is_reported or event.may_begin
