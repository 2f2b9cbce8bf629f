"""The notices that are due now, from one snapshot of the database; nothing else is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from console.audit import log
from console.audit.chain import Head
from console.db import decisions, turns
from console.db import notices as store
from console.db.decision_tables import conflict_notice
from console.db.notices import Incident
from console.db.snapshot import Snapshot
from console.fleet.values import HeardVm, KnownEvent, LatestReport, Vm
from console.fleet.view import decision_on
from console.notify import events, vms
from console.notify.notice import Notice
from console.notify.vms import SeenVm

_WINDOW_SECONDS: Final = 3600.0
"""Seconds: an end that is older is not told any more."""
_SETTLE_SECONDS: Final = 60.0
"""An event's end waits so long for the VMs that it names to say what it cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCandidates:
    """What a look has found."""

    notices: list[Notice]
    """About events and the audit: those that were not told before."""
    seen: list[SeenVm]
    """The VMs about which there may be something to tell."""
    incidents: Mapping[str, Incident]
    """What was told about VMs and is not over, by vmId."""
    conflicts: list[Vm]
    """The VMs that are in conflict and not retired."""
    conflicts_told: Mapping[str, Incident]
    """What was told about such, and is not over, by vmId."""

    def known(self, incidents: Mapping[str, Incident]) -> dict[str, Incident]:
        """Those incidents about which this look can say something: one that another console has
        opened meanwhile may be of a VM that was heard before.
        """
        looked_at = {*self.incidents, *(each.vm.vm_id for each in self.seen)}
        return {vm_id: each for vm_id, each in incidents.items() if vm_id in looked_at}


def look(snapshot: Snapshot, *, begun: float) -> NoticeCandidates:
    """What is to be told; `begun` is when consoles of this database began to tell, in seconds since
    1970.
    """
    since = max(begun, snapshot.now - _WINDOW_SECONDS)
    found: list[Notice] = []
    found += _due(snapshot)
    found += _turns(snapshot)
    found += _over(snapshot, since)
    found += _failed(snapshot, since)
    head = log.head(snapshot.connection)
    if head.number:
        found.append(_of_head(head, snapshot.now))
    new = store.not_stored(snapshot.connection, [each.id for each in found])
    incidents = store.incidents(snapshot.connection)
    return NoticeCandidates(
        notices=[each for each in found if each.id in new],
        seen=_seen(snapshot, since, incidents),
        incidents=incidents,
        conflicts=snapshot.vms.in_conflict(),
        conflicts_told=store.incidents(snapshot.connection, conflict_notice),
    )


def _due(snapshot: Snapshot) -> list[Notice]:
    """The decisions that are due; of an event that has come back after its end, once more."""
    opened = [
        (known, decision_on(known, snapshot.now, snapshot.listening).state)
        for known in snapshot.events.open()
    ]
    due = [(known, state) for known, state in opened if state in events.DUE]
    lives = store.lives_told(snapshot.connection, {known.event.event_id for known, _ in due})
    found: list[Notice] = []
    for known, state in due:
        life, _ = lives.get(known.event.event_id, (0, 0))
        found += events.of_open(known, state, snapshot.now, life=life)
    return found


def _over(snapshot: Snapshot, since: float) -> list[Notice]:
    """The ends that were not told yet, once the VMs that the event names have said what it cost."""
    settled = snapshot.now - _SETTLE_SECONDS
    ended = store.ended_without_notice(snapshot.connection, since, settled)
    lives = store.lives_told(snapshot.connection, {event_id for event_id, _ in ended})
    told = []
    for known in snapshot.events.of(ended).values():
        _, life = lives.get(known.event.event_id, (0, 0))
        said = snapshot.events.reports(known.event.key, own=True)
        told.append(events.over(known, _of_its_vms(known, said), life=life))
    return told


def _of_its_vms(known: KnownEvent, said: Iterable[LatestReport]) -> list[LatestReport]:
    """What those say that the event names as it is shown: one that adds itself says nothing."""
    return [each for each in said if each.named == known.shown.named]


def _turns(snapshot: Snapshot) -> list[Notice]:
    """Turns that are stuck, and events that have none where their group should wait."""
    troubled = [
        each.event_id
        for each in turns.read_turns(snapshot.connection)
        if each.state in ("forced", "stuck")
    ]
    told = (events.of_turn(each, snapshot.now) for each in snapshot.events.some(troubled))
    return [each for each in told if each is not None]


def _failed(snapshot: Snapshot, since: float) -> list[Notice]:
    failed = decisions.decisions_over(snapshot.connection, since, events.FAILURES)
    known = snapshot.events.of({each.key for each in failed})
    return [events.approval_failed(each, known.get(each.key)) for each in failed]


def _seen(snapshot: Snapshot, since: float, incidents: Mapping[str, Incident]) -> list[SeenVm]:
    """The VMs that are silent, that an event has taken away, or that people were told about."""
    cases = snapshot.vms.taken_away(since)
    known = snapshot.events.of(cases.values())
    silent = {each.vm.vm_id: each for each in snapshot.vms.with_contact(["silent"])}
    others = [vm_id for vm_id in {*incidents, *cases} if vm_id not in silent]
    found = []
    for each in [*silent.values(), *snapshot.vms.some(others)]:
        silent_since = _silent_since(each, snapshot)
        event = known.get(cases.get(each.vm.vm_id, ("", "")))
        case = None if event is None else vms.case_of(event, each.vm.vm_id, silent_since)
        found.append(SeenVm(vm=each.vm, contact=each.contact, since=silent_since, case=case))
    return found


def _silent_since(heard: HeardVm, snapshot: Snapshot) -> float:
    if heard.vm.lost_at is not None:
        return heard.vm.lost_at
    return heard.vm.heard_at + snapshot.listening.patience(heard.vm.interval)


def _of_head(head: Head, now: float) -> Notice:
    """The head of the audit's chain, so that a copy of it stands elsewhere."""
    return Notice(
        kind="audit-head",
        subject="audit",
        key=(head.number, head.hash),
        at=now,
        title=f"The audit has {head.number} rows",
        text=f"The hash of its last row is {head.hash}",
        path="/audit",
        vm={"name": "console"},
        more={"number": head.number, "hash": head.hash},
    )
