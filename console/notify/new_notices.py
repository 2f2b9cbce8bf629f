"""The notices that are due now, from one snapshot of the database; nothing else is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from console.notify import event_notices, vm_notices
from console.notify.notice import Notice
from console.notify.vm_notices import SeenVm

_WINDOW_SECONDS: Final = 3600.0
"""Seconds: an end that is older is not told any more."""
_BOUND_SECONDS: Final = 600.0
"""Within so many, not more than some notices are about one VM, and the events that it shows."""
_SETTLE_SECONDS: Final = 60.0
"""An event's end waits so long for the VMs that it names to say what it cost."""

AboutEvent = tuple[KnownEvent, Notice]


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
    """The notices that are due.

    `begun` is when consoles of this database began to send any, in seconds since 1970.
    """
    since = snapshot.now - _WINDOW_SECONDS
    if begun <= snapshot.now:  # or else the clock was set back since, and it says nothing
        since = max(begun, since)
    about = [*_due(snapshot), *_turns(snapshot), *_over(snapshot, since)]
    others = _failed(snapshot, since)
    head = log.head(snapshot.connection)
    if head.number:
        others.append(_of_head(head, snapshot.now))
    about, others = _told_apart(snapshot, about, others)
    ids = [each.id for each in (*others, *(notice for _, notice in about))]
    new = store.not_stored(snapshot.connection, ids)
    incidents = store.incidents(snapshot.connection)
    told = _within_bounds(snapshot, [each for each in about if each[1].id in new])
    return NoticeCandidates(
        notices=[*(each for each in others if each.id in new), *told],
        seen=_seen(snapshot, since, incidents),
        incidents=incidents,
        conflicts=snapshot.vms.in_conflict(),
        conflicts_told=store.incidents(snapshot.connection, conflict_notice),
    )


def _told_apart(
    snapshot: Snapshot, about: Sequence[AboutEvent], others: Sequence[Notice]
) -> tuple[list[AboutEvent], list[Notice]]:
    """The notices; those about an event whose id people know as that of another scope's event, as
    such: each of the two is told, and ended, once.
    """
    of_events = [notice for _, notice in about] + [
        each for each in others if each.scope is not None
    ]
    told = store.scopes_told(snapshot.connection, {each.subject for each in of_events})
    for each in of_events:
        told.setdefault(each.subject, each.scope or "")

    def apart(notice: Notice) -> Notice:
        is_other = notice.scope is not None and told[notice.subject] != notice.scope
        return replace(notice, is_other=is_other)

    return [(known, apart(each)) for known, each in about], [apart(each) for each in others]


def _within_bounds(snapshot: Snapshot, about: Sequence[AboutEvent]) -> list[Notice]:
    """What of the new notices about events is told now: of those that one VM shows not more than
    some, and first those of VMs that were told of least, so that nothing waits behind a thousand.
    The rest is told later, if it is still so.
    """
    if not about:
        return []
    told = store.told_lately(snapshot.connection, snapshot.now - _BOUND_SECONDS)
    found = []
    for known, notice in about:
        vm_id = known.event.shown_by
        if told[vm_id] < store.MAX_OF_ONE:
            told[vm_id] += 1
            found.append((told[vm_id], notice))
    return [notice for _, notice in sorted(found, key=lambda each: each[0])]


def _due(snapshot: Snapshot) -> list[AboutEvent]:
    """The decisions that are due; of an event that has come back after its end, once more."""
    opened = [
        (known, decision_on(known, snapshot.now, snapshot.listening).state)
        for known in snapshot.events.open()
    ]
    due = [(known, state) for known, state in opened if state in event_notices.DUE]
    lives = store.lives_told(snapshot.connection, {known.event.event_id for known, _ in due})
    found: list[AboutEvent] = []
    for known, state in due:
        life, _ = lives.get(known.event.key, (0, 0))
        notices = event_notices.of_open(known, state, snapshot.now, life=life)
        found += [(known, notice) for notice in notices]
    return found


def _over(snapshot: Snapshot, since: float) -> list[AboutEvent]:
    """The ends that were not told yet, once the VMs that the event names have said what it cost."""
    settled = snapshot.now - _SETTLE_SECONDS
    ended = store.ended_without_notice(snapshot.connection, since, settled)
    lives = store.lives_told(snapshot.connection, {event_id for event_id, _ in ended})
    told: list[AboutEvent] = []
    reports = snapshot.events.own_reports(ended)
    for known in snapshot.events.of(ended).values():
        _, life = lives.get(known.event.key, (0, 0))
        reported = reports.get(known.event.key, ())
        told.append((known, event_notices.over(known, _of_its_vms(known, reported), life=life)))
    return told


def _of_its_vms(known: KnownEvent, reported: Iterable[LatestReport]) -> list[LatestReport]:
    """What those say that the event names as it is shown: one that adds itself says nothing."""
    return [each for each in reported if each.names_hash == known.shown.names_hash]


def _turns(snapshot: Snapshot) -> list[AboutEvent]:
    """Turns that are stuck, and events that have none where their group should wait."""
    troubled = [
        each.event_id
        for each in turns.read_turns(snapshot.connection)
        if each.state in ("forced", "stuck")
    ]
    told = (
        (each, event_notices.of_turn(each, snapshot.now)) for each in snapshot.events.some(troubled)
    )
    return [(known, notice) for known, notice in told if notice is not None]


def _failed(snapshot: Snapshot, since: float) -> list[Notice]:
    failed = decisions.decisions_over(snapshot.connection, since, event_notices.FAILURES)
    known = snapshot.events.of({each.key for each in failed})
    return [event_notices.approval_failed(each, known.get(each.key)) for each in failed]


def _seen(snapshot: Snapshot, since: float, incidents: Mapping[str, Incident]) -> list[SeenVm]:
    """The VMs that are silent, that an event has taken away, or that people were told about."""
    cases = snapshot.vms.taken_away(since)
    known = snapshot.events.of(cases.values())
    silent = {each.vm.vm_id: each for each in snapshot.vms.with_contact(["silent"])}
    others = [vm_id for vm_id in {*incidents, *cases} if vm_id not in silent]
    # One that comes and goes: what opens with the next look is told later, if it is still so.
    waiting = store.told_away(snapshot.connection, snapshot.now - _BOUND_SECONDS) - {*incidents}
    found = []
    for each in [*silent.values(), *snapshot.vms.some(others)]:
        if each.vm.vm_id in waiting:
            continue
        silent_since = _silent_since(each, snapshot)
        key = cases.get(each.vm.vm_id)
        event = None if key is None else known.get(key)
        case = None if event is None else vm_notices.case_of(event, each.vm.vm_id, silent_since)
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
