"""The facts of VMs from which turns are decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Row, and_, or_, select

from console.db.bulk import portions, rows_in
from console.db.events.event_lists import ENDED
from console.db.schema.tables import event, report, vm
from console.db.snapshot import Snapshot
from console.db.vms.contact import contact_of, may_have_unread
from console.db.vms.grouping import columns_of, keys_of, possible_keys
from console.fleet.candidates import channel_of
from console.fleet.contact import DEFAULT_INTERVAL_SECONDS, INTERVALS, Contact
from console.fleet.values.event import OPEN
from console.fleet.values.keys import EventKey
from console.fleet.values.vm import Vm
from console.turns.facts import VmFacts, VmPreparation
from console.turns.groups import Group, Grouping, Member

_FACTS: Final = (
    "vm_id",
    "name",
    "heard_at",
    "record_time",
    "instance_id",
    "interval",
    "stopped_at",
    "lost_at",
    "prepares",
    "command_source",
    "pulled_at",
)
"""The columns of a VM from which turns are decided."""
_AHEAD_SECONDS: Final = 30.0
"""How far the clocks of two consoles on one database may differ, and more."""
_LATE_INTERVALS: Final = INTERVALS / 2
"""How many heartbeat intervals a VM may send nothing until it may be gone."""


def member_of(known: Vm) -> Member:
    """Return a VM as groups see it."""
    return Member(
        vm_id=known.vm_id,
        name=known.name,
        site=known.site,
        location=known.location or "",
        zone=known.zone or "",
        scale_set=known.scale_set or "",
        resource_group=known.resource_group or "",
        tags=known.tags,
    )


def read_vm_facts(
    snapshot: Snapshot,
    grouping: Grouping,
    groups: Mapping[str, Group],
    preparations: Mapping[str, Sequence[VmPreparation]],
    wanted: Collection[str],
    *,
    retaining: Collection[str] = (),
) -> dict[str, VmFacts]:
    """Return the VMs that may be away: those that are late, are not heard or may have told what no
    console has read, and those in `wanted`. `groups`: every group by key; `retaining`: as in
    `may_have_unread`.
    """
    contact = contact_of(vm, snapshot.now, snapshot.listening).label("contact")
    unread = may_have_unread(vm, snapshot.now, snapshot.listening, retaining=retaining)
    columns: list[ColumnElement[Any]] = [vm.c[name] for name in _FACTS]
    columns += [contact, unread.label("has_unread")]
    there: Any = select(*columns, *columns_of(grouping, vm)).where(vm.c.retired_at.is_(None))
    is_ahead = vm.c.heard_at > snapshot.now + _AHEAD_SECONDS
    queries = [there.where(or_(contact != "heard", is_ahead, unread))]
    queries += [there.where(vm.c.vm_id.in_(few)) for few in portions(wanted)]
    found = {
        row.vm_id: row for query in queries for row in snapshot.connection.execute(query).all()
    }
    late = [row.vm_id for row in found.values() if row.contact == "late"]
    missed = _missed_ends(snapshot.connection, late)
    return {
        vm_id: _facts(
            snapshot, row, _groups_of(row, grouping, groups), preparations, missed.get(vm_id)
        )
        for vm_id, row in found.items()
    }


def _missed_ends(connection: Connection, late: Iterable[str]) -> dict[str, EventKey]:
    """Return the key of an event whose end a VM has missed, by vmId: the VM still reports it as
    pending, and others have reported its end. VMs without such an event are left out.
    """
    r, e = report.c, event.c
    same = and_(e.event_id == r.event_id, e.scope == r.scope)
    missed = (
        select(r.vm_id, r.event_id, r.scope)
        .join(event, same)
        .where(r.over == 0, r.is_own == 1, e.state == ENDED, e.is_news == 0)
    )
    found = {}
    for few in portions(late):
        for row in connection.execute(missed.where(r.vm_id.in_(few))):
            found[row.vm_id] = EventKey(row.event_id, row.scope)
    return found


@dataclass(frozen=True, slots=True)
class OwnReport:
    """What a VM reports about an open event that names it by this report."""

    vm_id: str
    time: float
    """The time of the report, by the VM's clock."""
    is_started: bool
    is_later: bool
    """Whether it is later than the report by which the event is shown."""


def own_reports(connection: Connection, *, since: float) -> dict[EventKey, list[OwnReport]]:
    """Return, by the key of an open event, what the VMs report that it names by their own reports:
    every report that it has started, that is later than what is shown, or not from before `since`.
    What a VM reported before its store was made again does not count: it may report no end of that.
    """
    r, e = report.c, event.c
    same = and_(e.event_id == r.event_id, e.scope == r.scope)
    same_store = and_(vm.c.vm_id == r.vm_id, vm.c.stream == r.stream)
    is_later = r.time > e.shown_at
    wanted = (
        select(r.event_id, r.scope, r.vm_id, r.time, r.is_started, is_later.label("is_later"))
        .join(event, same)
        .join(vm, same_store)
        .where(r.over == 0, r.is_own == 1, e.state.in_(OPEN))
        .where(or_(r.is_started == 1, is_later, r.time >= since))
    )
    found: dict[EventKey, list[OwnReport]] = {}
    for row in connection.execute(wanted):
        one = OwnReport(row.vm_id, row.time, bool(row.is_started), bool(row.is_later))
        found.setdefault(EventKey(row.event_id, row.scope), []).append(one)
    return found


def pending_reports(
    connection: Connection, vm_ids: Iterable[str]
) -> dict[str, frozenset[EventKey]]:
    """Return the keys of the events that VMs report as pending and that name them, by vmId. What a
    VM reported before its store was made again does not count: it may report no end of that.
    """
    r = report.c
    same_store = and_(vm.c.vm_id == r.vm_id, vm.c.stream == r.stream)
    own = (
        select(r.vm_id, r.event_id, r.scope).join(vm, same_store).where(r.over == 0, r.is_own == 1)
    )
    found: dict[str, frozenset[EventKey]] = {}
    for row in rows_in(connection, own, r.vm_id, vm_ids):
        key = EventKey(row.event_id, row.scope)
        found[row.vm_id] = found.get(row.vm_id, frozenset()) | {key}
    return found


def _groups_of(row: Row[Any], grouping: Grouping, groups: Mapping[str, Group]) -> frozenset[str]:
    values = row[len(_FACTS) + 2 :]
    if row.record_time:
        return keys_of(grouping, values)
    return possible_keys(grouping, values, groups.values())


def _facts(
    snapshot: Snapshot,
    row: Row[Any],
    groups: frozenset[str],
    preparations: Mapping[str, Sequence[VmPreparation]],
    missed_end: EventKey | None,
) -> VmFacts:
    # The clock was set back since it was heard: how long ago that was is not known.
    is_ahead = row.contact in ("heard", "late") and row.heard_at > snapshot.now + _AHEAD_SECONDS
    due_at = row.heard_at + _LATE_INTERVALS * (row.interval or DEFAULT_INTERVAL_SECONDS)
    is_due = row.contact == "late" and snapshot.now <= due_at
    heard_until = row.heard_at + snapshot.listening.silent_time.of(row.interval)
    channel = channel_of(row.command_source, row.pulled_at, snapshot.now, snapshot.listening)
    return VmFacts(
        vm_id=row.vm_id,
        name=row.name,
        groups=groups,
        is_described=bool(row.record_time),
        contact=_contact("learning" if is_ahead else "heard" if is_due else row.contact),
        heard_at=row.heard_at,
        instance_id=row.instance_id,
        may_have_unread=bool(row.has_unread),
        contact_since=row.stopped_at or row.lost_at or heard_until,
        prepares=bool(row.prepares),
        # Only heartbeats and the MQTT status say whether it prepares; records of events do not.
        has_said=bool(row.prepares) or row.interval is not None or row.command_source is not None,
        takes_commands=channel is not None,
        missed_end=missed_end,
        preparations=preparations.get(row.vm_id, ()),
    )


def _contact(word: Contact) -> Literal["heard", "late", "silent", "stopped", "learning"]:
    assert word != "retired"  # noqa: S101  # the query leaves them out
    return word
