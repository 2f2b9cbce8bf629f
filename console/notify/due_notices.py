"""The notices that are due now, found in one snapshot of the database; nothing else is
remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from console.audit import audit_log
from console.audit.chain import Head
from console.db import notices as notice_rows
from console.db.decisions import decision_rows, turn_rows
from console.db.events.event_reports import reports_of_named_vms
from console.db.notices import EndCounts, Incident
from console.db.snapshot import Snapshot
from console.db.vms.silent_vms import events_that_silenced
from console.fleet.event_view import decision_on
from console.fleet.values.event import KnownEvent
from console.fleet.values.report import LatestReport
from console.fleet.values.vm import HeardVm, Vm
from console.notify import event_notices, vm_notices
from console.notify.notice import Notice
from console.notify.vm_notices import VmToCheck

_WINDOW_SECONDS: Final = 3600.0
"""An end that is older gets no notice."""
_BOUND_SECONDS: Final = 600.0
"""The time for which the number of notices about one VM, and the events that it shows, is
limited.
"""
_SETTLE_SECONDS: Final = 60.0
"""How long the notice of an event's end waits for its VMs to report what they measured."""

AboutEvent = tuple[KnownEvent, Notice]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCandidates:
    """The notices that one check of the database has found."""

    notices: list[Notice]
    """New notices about events and the audit."""
    vms: list[VmToCheck]
    """The VMs that may need a notice."""
    incidents: Mapping[str, Incident]
    """The open incidents of VMs, by vmId."""
    conflicts: list[Vm]
    """The VMs that are in conflict and not retired."""
    conflict_incidents: Mapping[str, Incident]
    """The open incidents of conflicts, by vmId."""

    def known(self, incidents: Mapping[str, Incident]) -> dict[str, Incident]:
        """Return those of these incidents that this check can judge. Another console may have
        opened one since, for a VM that this check did not read.
        """
        checked = {*self.incidents, *(each.vm.vm_id for each in self.vms)}
        return {vm_id: each for vm_id, each in incidents.items() if vm_id in checked}


def due_notices(snapshot: Snapshot, *, begun: float) -> NoticeCandidates:
    """Return the notices that are due. `begun` is when consoles of this database began to send any,
    in seconds since 1970.
    """
    since = snapshot.now - _WINDOW_SECONDS
    if begun <= snapshot.now:  # otherwise the clock was set back since
        since = max(begun, since)
    about = [*_due_notices(snapshot), *_turn_notices(snapshot), *_end_notices(snapshot, since)]
    others = _failure_notices(snapshot, since)
    head = audit_log.head(snapshot.connection)
    if head.number:
        others.append(_head_notice(head, snapshot.now))
    about, others = _with_other_scopes(snapshot, about, others)
    ids = [each.id for each in (*others, *(notice for _, notice in about))]
    new = notice_rows.not_stored(snapshot.connection, ids)
    incidents = notice_rows.incidents(snapshot.connection, "contact")
    within_bounds = _within_bounds(snapshot, [each for each in about if each[1].id in new])
    return NoticeCandidates(
        notices=[*(each for each in others if each.id in new), *within_bounds],
        vms=_vms_to_check(snapshot, since, incidents),
        incidents=incidents,
        conflicts=snapshot.vms.vms_in_conflict(),
        conflict_incidents=notice_rows.incidents(snapshot.connection, "identity"),
    )


def _with_other_scopes(
    snapshot: Snapshot, about: Sequence[AboutEvent], others: Sequence[Notice]
) -> tuple[list[AboutEvent], list[Notice]]:
    """Mark the notices about an event whose id people know from an event of another scope, so that
    each of the two is announced and ended once.
    """
    of_events = [notice for _, notice in about] + [
        each for each in others if each.scope is not None
    ]
    first_scopes = notice_rows.first_noticed_scopes(
        snapshot.connection, {each.subject for each in of_events}
    )
    for each in of_events:
        first_scopes.setdefault(each.subject, each.scope or "")

    def with_scope_mark(notice: Notice) -> Notice:
        is_other = notice.scope is not None and first_scopes[notice.subject] != notice.scope
        return replace(notice, is_other=is_other)

    return [(known, with_scope_mark(each)) for known, each in about], [
        with_scope_mark(each) for each in others
    ]


def _within_bounds(snapshot: Snapshot, about: Sequence[AboutEvent]) -> list[Notice]:
    """Return the notices about events that may be sent now. Their number is limited for the events
    that one VM shows. Each VM's first notice comes before any VM's second one, so that none waits
    behind a thousand of another VM. The others follow later, if they are still true.
    """
    if not about:
        return []
    counts = notice_rows.recent_event_notices(snapshot.connection, snapshot.now - _BOUND_SECONDS)
    found = []
    for known, notice in about:
        vm_id = known.event.shown_by
        if counts[vm_id] < notice_rows.MAX_OF_ONE:
            counts[vm_id] += 1
            found.append((counts[vm_id], notice))
    return [notice for _, notice in sorted(found, key=lambda each: each[0])]


def _due_notices(snapshot: Snapshot) -> list[AboutEvent]:
    """Return the notices of decisions that are due. An event that was announced again after its end
    has its notice once more.
    """
    opened = [
        (known, decision_on(known, snapshot.now, snapshot.listening).state)
        for known in snapshot.event_lists.open_events()
    ]
    due = [(known, state) for known, state in opened if state in event_notices.DUE]
    ends = notice_rows.count_end_notices(
        snapshot.connection, {known.event.event_id for known, _ in due}
    )
    found: list[AboutEvent] = []
    for known, state in due:
        times_ended = ends.get(known.event.key, EndCounts()).total
        notices = event_notices.notices_of_open(known, state, snapshot.now, times_ended=times_ended)
        found += [(known, notice) for notice in notices]
    return found


def _end_notices(snapshot: Snapshot, since: float) -> list[AboutEvent]:
    """Return the notices of ends, once the VMs that the event names have reported what they
    measured.
    """
    settled = snapshot.now - _SETTLE_SECONDS
    ended = notice_rows.ended_without_notice(snapshot.connection, since, settled)
    ends = notice_rows.count_end_notices(snapshot.connection, {event_id for event_id, _ in ended})
    found: list[AboutEvent] = []
    reports = reports_of_named_vms(snapshot.connection, ended)
    for known in snapshot.events.events_by_key(ended).values():
        times_ended = ends.get(known.event.key, EndCounts()).before_last_due
        reported = reports.get(known.event.key, ())
        found.append(
            (
                known,
                event_notices.over(known, _of_its_vms(known, reported), times_ended=times_ended),
            )
        )
    return found


def _of_its_vms(known: KnownEvent, reported: Iterable[LatestReport]) -> list[LatestReport]:
    """Return the reports that name the same VMs as the one that is shown: a VM that adds its own
    name does not count.
    """
    return [each for each in reported if each.names_hash == known.shown.names_hash]


def _turn_notices(snapshot: Snapshot) -> list[AboutEvent]:
    """Return the notices of turns that are stuck, and of events that start without a turn."""
    troubled = [
        each.event_id
        for each in turn_rows.read_turns(snapshot.connection)
        if each.state in ("forced", "stuck")
    ]
    found = (
        (each, event_notices.of_turn(each, snapshot.now))
        for each in snapshot.events.events_with_ids(troubled)
    )
    return [(known, notice) for known, notice in found if notice is not None]


def _failure_notices(snapshot: Snapshot, since: float) -> list[Notice]:
    failed = decision_rows.decisions_over(snapshot.connection, since, event_notices.FAILURES)
    known = snapshot.events.events_by_key({each.key for each in failed})
    return [event_notices.approval_failed(each, known.get(each.key)) for each in failed]


def _vms_to_check(
    snapshot: Snapshot, since: float, incidents: Mapping[str, Incident]
) -> list[VmToCheck]:
    """Return the VMs that are silent, that have not come back after an event, or that have an open
    incident.
    """
    events_by_vm = events_that_silenced(snapshot.vms, since)
    known = snapshot.events.events_by_key(events_by_vm.values())
    silent = {each.vm.vm_id: each for each in snapshot.vms.vms_with_contact(["silent"])}
    others = [vm_id for vm_id in {*incidents, *events_by_vm} if vm_id not in silent]
    # VMs that come and go: an incident that would open now waits, and opens later if it still
    # holds.
    waiting = notice_rows.at_away_limit(snapshot.connection, snapshot.now - _BOUND_SECONDS) - {
        *incidents
    }
    found = []
    for each in [*silent.values(), *snapshot.vms.vms_with_ids(others)]:
        if each.vm.vm_id in waiting:
            continue
        silent_since = _silent_since(each, snapshot)
        key = events_by_vm.get(each.vm.vm_id)
        event = None if key is None else known.get(key)
        awaited = (
            None if event is None else vm_notices.awaited_return(event, each.vm.vm_id, silent_since)
        )
        found.append(
            VmToCheck(vm=each.vm, contact=each.contact, since=silent_since, awaited_return=awaited)
        )
    return found


def _silent_since(heard: HeardVm, snapshot: Snapshot) -> float:
    if heard.vm.lost_at is not None:
        return heard.vm.lost_at
    return heard.vm.heard_at + snapshot.listening.silent_time.of(heard.vm.interval)


def _head_notice(head: Head, now: float) -> Notice:
    """Return the notice with the head of the audit's chain, so that a copy of the head exists
    elsewhere.
    """
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
