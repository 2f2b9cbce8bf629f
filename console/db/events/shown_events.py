"""The rows of events: chooses the reporter that each event is shown by, and writes what
it reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, and_, delete, func, select, tuple_, update

from console.db import rows
from console.db.bulk import PAIRS_AT_ONCE, insert_new, portions, rows_in, upsert
from console.db.schema import tables
from console.db.vms.contact import contact_of
from console.fleet.batch import ReporterKey
from console.fleet.contact import Listening
from console.fleet.reporter_choice import (
    NamedReport,
    ReportCount,
    as_shown,
    choose_reporter,
    is_contested,
    with_first_seen_of,
)
from console.fleet.values.event import FleetEvent
from console.fleet.values.keys import EventKey, folded
from console.fleet.values.report import LatestReport

_EVENT: Final = tables.event.c
_REPORT: Final = tables.report.c
_VM: Final = tables.vm.c
_EVENT_KEY: Final = tuple_(_EVENT.event_id, _EVENT.scope)
_REPORT_KEY: Final = tuple_(_REPORT.event_id, _REPORT.scope)


def write_events(
    connection: Connection,
    keys: Collection[EventKey],
    incoming: Mapping[ReporterKey, LatestReport],
    *,
    now: float,
    listening: Listening,
    number: int,
    older: Iterable[LatestReport] = (),
) -> None:
    """Write the rows of these events after their reports have changed. `incoming` has the reports
    that this transaction has written, by event id and vmId; `older` those that came with them and
    are not the newest of their reporters.
    """
    if not keys:
        return
    older_of: dict[EventKey, list[LatestReport]] = {}
    for each in older:
        older_of.setdefault(each.key, []).append(each)
    events = _events(connection, keys)
    named = _named_reports(connection, keys, now, listening)
    contested = [key for key in keys if is_contested(named.get(key, ()))]
    if contested:
        named |= _with_resources(connection, {key: named[key] for key in contested})
    support = _support(connection, contested, now, listening) if contested else {}
    fresh_of: dict[EventKey, list[LatestReport]] = {}
    for each in incoming.values():
        fresh_of.setdefault(each.key, []).append(each)
    reporters = {
        key: choose_reporter(
            events.get(key), named.get(key, ()), support.get(key, ()), fresh_of.get(key, ())
        )
        for key in keys
    }
    shown = _shown_reports(connection, reporters, incoming)
    sites = _sites(connection, shown, named)
    after = [
        as_shown(
            with_first_seen_of(events.get(key), report, named.get(key, ())),
            report,
            [*fresh_of.get(key, ()), *older_of.get(key, ())],
            sites=sites[key],
        )
        for key, report in shown.items()
    ]
    new = [each for each in after if each != events.get(each.key)]
    same = [each for each in after if each == events.get(each.key)]
    upsert(connection, tables.event, [rows.event_row(each, number) for each in new])
    _touch(connection, [each.key for each in same if each.key in fresh_of], number)
    renamed = {
        each.key: each
        for each in new
        if each.key not in events or events[each.key].search_text != each.search_text
    }
    _write_names(connection, renamed, shown, number)
    _write_places(connection, {each.key: shown[each.key] for each in new})
    _add_places(connection, {key: each.content_hash for key, each in shown.items()}, incoming)
    _drop(connection, [key for key in keys if key not in shown])


def _shown_reports(
    connection: Connection,
    reporters: Mapping[EventKey, str | None],
    incoming: Mapping[ReporterKey, LatestReport],
) -> dict[EventKey, LatestReport]:
    """Return for each event the report by which it is shown: that of its reporter. An event without
    a reporter, or whose reporter is in another scope now, is shown by its newest report. Events
    that no VM reports any more are left out.
    """
    wanted = {key: vm_id for key, vm_id in reporters.items() if vm_id is not None}
    shown = reports_by(connection, wanted, incoming)
    others = reporters.keys() - shown.keys()
    return shown | reports_by(connection, _newest(connection, others), incoming)


def pending_of(connection: Connection, vm_ids: Iterable[str]) -> set[EventKey]:
    """Return the events that one of these VMs reports, that name it, and that are not
    over for it.
    """
    query = select(_REPORT.event_id, _REPORT.scope).where(_REPORT.over == 0, _REPORT.is_own == 1)
    found = rows_in(connection, query, _REPORT.vm_id, vm_ids)
    return {rows.key_of(row) for row in found}


def _events(connection: Connection, keys: Iterable[EventKey]) -> dict[EventKey, FleetEvent]:
    found = rows_in(connection, select(tables.event), _EVENT_KEY, keys)
    return {rows.key_of(row): rows.event_of(row) for row in found}


def _named_reports(
    connection: Connection, keys: Iterable[EventKey], now: float, listening: Listening
) -> dict[EventKey, list[NamedReport]]:
    """Return, for each event, the reports of the VMs that it names."""
    contact = contact_of(tables.vm, now, listening).label("contact")
    columns = (
        _REPORT.event_id,
        _REPORT.scope,
        _REPORT.vm_id,
        _REPORT.content_hash,
        _REPORT.names_hash,
        _REPORT.over,
        _REPORT.time,
    )
    found: dict[EventKey, list[NamedReport]] = {}
    query = (
        select(*columns, _VM.name_since, _VM.site, _VM.folded, _VM.place, contact)
        .join(tables.vm, _VM.vm_id == _REPORT.vm_id)
        .where(_REPORT.is_own == 1)
    )
    for row in rows_in(connection, query, _REPORT_KEY, keys):
        found.setdefault(rows.key_of(row), []).append(
            NamedReport(
                vm_id=row.vm_id,
                content_hash=row.content_hash,
                names_hash=row.names_hash,
                is_over=bool(row.over),
                time=row.time,
                is_heard=row.contact == "heard",
                name_since=row.name_since,
                site=row.site,
                folded=row.folded,
                place=row.place,
            )
        )
    return found


def _with_resources(
    connection: Connection, reports: Mapping[EventKey, Sequence[NamedReport]]
) -> dict[EventKey, list[NamedReport]]:
    """Return these reports, with the names that are listed by each one that says the event is
    over.
    """
    ended = {
        (key.event_id, each.vm_id)
        for key, several in reports.items()
        for each in several
        if each.is_over
    }
    reporter = tuple_(_REPORT.event_id, _REPORT.vm_id)
    listed = {
        (row.event_id, row.vm_id): frozenset(
            map(folded, rows.report_of(row).report.event.resources)
        )
        for row in rows_in(connection, select(tables.report), reporter, ended)
    }
    none: frozenset[str] = frozenset()
    return {
        key: [
            replace(each, resources=listed.get((key.event_id, each.vm_id), none))
            for each in several
        ]
        for key, several in reports.items()
    }


def _support(
    connection: Connection, keys: Iterable[EventKey], now: float, listening: Listening
) -> dict[EventKey, list[ReportCount]]:
    """Return how many heard reporters report the same of an event, by place."""
    heard = contact_of(tables.vm, now, listening) == "heard"
    columns = (
        _REPORT.event_id,
        _REPORT.scope,
        _REPORT.names_hash,
        _VM.place,
        _REPORT.content_hash,
        _REPORT.over,
    )
    found: dict[EventKey, list[ReportCount]] = {}
    query = (
        select(*columns, func.count().label("number"))
        .join(tables.vm, _VM.vm_id == _REPORT.vm_id)
        .where(_REPORT.is_weak == 0, heard)
        .group_by(*columns)
    )
    for row in rows_in(connection, query, _REPORT_KEY, keys):
        found.setdefault(rows.key_of(row), []).append(
            ReportCount(
                names_hash=row.names_hash,
                place=row.place,
                content_hash=row.content_hash,
                is_over=bool(row.over),
                count=row.number,
            )
        )
    return found


def _newest(connection: Connection, keys: Iterable[EventKey]) -> dict[EventKey, str]:
    """Return the reporter with the newest report of each of these events, if it has one."""
    rank = func.row_number().over(
        partition_by=(_REPORT.event_id, _REPORT.scope),
        order_by=(_REPORT.is_weak, _REPORT.time.desc(), _REPORT.vm_id),
    )
    found: dict[EventKey, str] = {}
    for some in portions(keys, PAIRS_AT_ONCE):
        ranked = select(_REPORT.event_id, _REPORT.scope, _REPORT.vm_id, rank.label("rank"))
        ranked = ranked.where(tuple_(_REPORT.event_id, _REPORT.scope).in_(some))
        each = ranked.subquery().c
        newest = select(each.event_id, each.scope, each.vm_id).where(each.rank == 1)
        for row in connection.execute(newest):
            found[rows.key_of(row)] = row.vm_id
    return found


def reports_by(
    connection: Connection,
    wanted: Mapping[EventKey, str],
    incoming: Mapping[ReporterKey, LatestReport],
) -> dict[EventKey, LatestReport]:
    """Return, for each of these events, the report of the VM that it is shown by."""
    found = {}
    missing = set()
    for key, vm_id in wanted.items():
        known = incoming.get(ReporterKey(key.event_id, vm_id))
        if known is not None and known.scope == key.scope:
            found[key] = known
        else:
            missing.add((key.event_id, vm_id))
    reporter = tuple_(_REPORT.event_id, _REPORT.vm_id)
    for row in rows_in(connection, select(tables.report), reporter, missing):
        # The reporter may be in another scope now, where another one shows the event.
        if wanted.get(rows.key_of(row)) == row.vm_id:
            found[rows.key_of(row)] = rows.report_of(row)
    return found


def _sites(
    connection: Connection,
    shown: Mapping[EventKey, LatestReport],
    named_reports: Mapping[EventKey, Iterable[NamedReport]],
) -> dict[EventKey, tuple[str, ...]]:
    """Return the sites of each event: those of the named VMs that report it, or else that of its
    reporter. A VM in another place than the reporter is left out if a VM in the reporter's place
    bears the same name.
    """
    reporters = _places(connection, {each.vm_id for each in shown.values()})
    own: dict[EventKey, list[NamedReport]] = {}
    for key, latest in shown.items():
        names = {folded(name) for name in latest.report.event.resources}
        own[key] = [each for each in named_reports.get(key, ()) if each.folded in names]
    wanted = {
        (reporters[shown[key].vm_id][1], each.folded)
        for key, several in own.items()
        for each in several
        if each.place != reporters[shown[key].vm_id][1]
    }
    borne = _borne_names(connection, wanted)
    found = {}
    for key, several in own.items():
        site, place = reporters[shown[key].vm_id]
        sites = {
            each.site
            for each in several
            if each.place == place or (place, each.folded) not in borne
        }
        found[key] = tuple(sorted(sites or {site}))
    return found


def _places(connection: Connection, vm_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the site and the place of each of these VMs."""
    found = rows_in(connection, select(_VM.vm_id, _VM.site, _VM.place), _VM.vm_id, vm_ids)
    return {row.vm_id: (row.site, row.place) for row in found}


def _borne_names(connection: Connection, names: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of these names that a VM bears, each name with the VM's place."""
    query = select(_VM.place, _VM.folded)
    found = rows_in(connection, query, tuple_(_VM.place, _VM.folded), names)
    return {(row.place, row.folded) for row in found}


def _touch(connection: Connection, keys: Iterable[EventKey], number: int) -> None:
    """Mark events as changed that have a new report and otherwise the same values."""
    for some in portions(keys, PAIRS_AT_ONCE):
        same = _EVENT_KEY.in_(some)
        connection.execute(update(tables.event).where(same).values(change_number=number))


def _write_names(
    connection: Connection,
    events: Mapping[EventKey, FleetEvent],
    shown: Mapping[EventKey, LatestReport],
    number: int,
) -> None:
    """Replace the stored resource names of events, and mark the VMs that an event no longer names
    as changed.
    """
    r = tables.resource.c
    before: dict[EventKey, set[str]] = {}
    for row in rows_in(connection, select(tables.resource), tuple_(r.event_id, r.scope), events):
        before.setdefault(rows.key_of(row), set()).add(row.folded)
    new = []
    for key, event in events.items():
        names = {folded(name) for name in shown[key].report.event.resources}
        had = before.get(key, set())
        values = {"event_id": event.event_id, "scope": event.scope}
        new += [{**values, "folded": name} for name in sorted(names - had)]
        for dropped in portions(sorted(had - names)):
            same = (r.event_id == event.event_id, r.scope == event.scope, r.folded.in_(dropped))
            connection.execute(delete(tables.resource).where(*same))
            _note_dropped(connection, event, dropped, number)
    insert_new(connection, tables.resource, new)


def _write_places(connection: Connection, shown: Mapping[EventKey, LatestReport]) -> None:
    """Replace the places of these events by those of the reporters that report what is shown.
    Within a place the names that an event lists are unique.
    """
    p = tables.event_place.c
    places: list[dict[str, str]] = []
    for some in portions(shown, PAIRS_AT_ONCE):
        same = tuple_(p.event_id, p.scope).in_(some)
        connection.execute(delete(tables.event_place).where(same))
        query = (
            select(_REPORT.event_id, _REPORT.scope, _REPORT.content_hash, _VM.place)
            .join(tables.vm, _VM.vm_id == _REPORT.vm_id)
            .where(tuple_(_REPORT.event_id, _REPORT.scope).in_(some))
            .distinct()
        )
        for row in connection.execute(query):
            key = rows.key_of(row)
            if row.content_hash == shown[key].content_hash:
                places.append({"event_id": key.event_id, "scope": key.scope, "place": row.place})
    insert_new(connection, tables.event_place, places)


def _add_places(
    connection: Connection,
    content_hashes: Mapping[EventKey, str],
    incoming: Mapping[ReporterKey, LatestReport],
) -> None:
    """Add the places of new reporters that report what is shown; `content_hashes` has that, by
    event. Only the new ones are read: an event may have thousands of others.
    """
    agreeing = [
        each for each in incoming.values() if content_hashes.get(each.key) == each.content_hash
    ]
    places = _places(connection, {each.vm_id for each in agreeing})
    found = {(*each.key, places[each.vm_id][1]) for each in agreeing if each.vm_id in places}
    rows_of = [{"event_id": e, "scope": s, "place": p} for e, s, p in sorted(found)]
    insert_new(connection, tables.event_place, rows_of)


def _note_dropped(
    connection: Connection, event: FleetEvent, names: Collection[str], number: int
) -> None:
    """Mark the VMs as changed that the event no longer names."""
    v = tables.vm
    p = tables.event_place.c
    places = select(p.place).where(p.event_id == event.event_id, p.scope == event.scope)
    dropped = update(v).where(v.c.place.in_(places), v.c.folded.in_(names))
    connection.execute(dropped.values(change_number=number))


def _drop(connection: Connection, keys: Iterable[EventKey]) -> None:
    """Delete events that have no reporter any more: their reports belong to another event now."""
    for key in keys:
        for table in (tables.resource, tables.event_place, tables.event):
            same = and_(table.c.event_id == key.event_id, table.c.scope == key.scope)
            connection.execute(delete(table).where(same))
