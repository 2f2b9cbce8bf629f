"""The rows of events: chooses the reporter by which each event is shown, and writes its report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, and_, delete, select, tuple_, update

from console.db import rows
from console.db.bulk import PAIRS_AT_ONCE, insert_new, portions, rows_in, upsert
from console.db.events.event_reports import (
    count_reports,
    named_reports,
    newest_reporters,
    reports_by,
    with_resources,
)
from console.db.schema import tables
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
from console.fleet.values.keys import EventKey, name_key
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
    change_number: int,
    older: Iterable[LatestReport] = (),
) -> None:
    """Write the rows of these events after their reports have changed. `incoming` has the reports
    that this transaction has written, by event id and vmId; `older` those that came with them and
    are not the newest of their reporters.
    """
    if not keys:
        return
    before = _events(connection, keys)
    incoming_of, older_of = _by_event(incoming.values()), _by_event(older)
    named = named_reports(connection, keys, now, listening)
    contested = {key: named[key] for key in keys if is_contested(named.get(key, ()))}
    named |= with_resources(connection, contested)
    counts = count_reports(connection, contested, now, listening)
    reporters = _chosen_reporters(keys, before, named, counts, incoming_of)
    shown = _shown_reports(connection, reporters, incoming)
    sites = _sites(connection, shown, named)
    after = [
        as_shown(
            with_first_seen_of(before.get(key), report, named.get(key, ())),
            report,
            [*incoming_of.get(key, ()), *older_of.get(key, ())],
            sites=sites[key],
        )
        for key, report in shown.items()
    ]
    _write_shown(connection, before, after, shown, change_number)
    same = [each.key for each in after if each == before.get(each.key)]
    _mark_changed(connection, [key for key in same if key in incoming_of], change_number)
    _add_places(connection, {key: each.content_hash for key, each in shown.items()}, incoming)
    _delete_events(connection, [key for key in keys if key not in shown])


def _chosen_reporters(
    keys: Iterable[EventKey],
    before: Mapping[EventKey, FleetEvent],
    named: Mapping[EventKey, Sequence[NamedReport]],
    counts: Mapping[EventKey, Sequence[ReportCount]],
    incoming: Mapping[EventKey, Sequence[LatestReport]],
) -> dict[EventKey, str | None]:
    return {
        key: choose_reporter(
            before.get(key), named.get(key, ()), counts.get(key, ()), incoming.get(key, ())
        )
        for key in keys
    }


def _by_event(reports: Iterable[LatestReport]) -> dict[EventKey, list[LatestReport]]:
    found: dict[EventKey, list[LatestReport]] = {}
    for each in reports:
        found.setdefault(each.key, []).append(each)
    return found


def _write_shown(
    connection: Connection,
    before: Mapping[EventKey, FleetEvent],
    after: Iterable[FleetEvent],
    shown: Mapping[EventKey, LatestReport],
    change_number: int,
) -> None:
    """Write the events that are new or have other values than before, with their names and
    places.
    """
    new = [each for each in after if each != before.get(each.key)]
    upsert(connection, tables.event, [rows.event_row(each, change_number) for each in new])
    renamed = {
        each.key: each
        for each in new
        if each.key not in before or before[each.key].search_text != each.search_text
    }
    _write_names(connection, renamed, shown, change_number)
    _write_places(connection, {each.key: shown[each.key] for each in new})


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
    return shown | reports_by(connection, newest_reporters(connection, others), incoming)


def _events(connection: Connection, keys: Iterable[EventKey]) -> dict[EventKey, FleetEvent]:
    found = rows_in(connection, select(tables.event), _EVENT_KEY, keys)
    return {rows.key_of(row): rows.event_of(row) for row in found}


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
        names = {name_key(name) for name in latest.report.event.resources}
        own[key] = [each for each in named_reports.get(key, ()) if each.name_key in names]
    wanted = {
        (reporters[shown[key].vm_id][1], each.name_key)
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
            if each.place == place or (place, each.name_key) not in borne
        }
        found[key] = tuple(sorted(sites or {site}))
    return found


def _places(connection: Connection, vm_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the site and the place of each of these VMs."""
    found = rows_in(connection, select(_VM.vm_id, _VM.site, _VM.place), _VM.vm_id, vm_ids)
    return {row.vm_id: (row.site, row.place) for row in found}


def _borne_names(connection: Connection, names: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of these names that a VM bears, each name with the VM's place."""
    query = select(_VM.place, _VM.name_key)
    found = rows_in(connection, query, tuple_(_VM.place, _VM.name_key), names)
    return {(row.place, row.name_key) for row in found}


def _mark_changed(connection: Connection, keys: Iterable[EventKey], change_number: int) -> None:
    """Mark events as changed that have a new report and otherwise the same values."""
    for portion in portions(keys, PAIRS_AT_ONCE):
        same = _EVENT_KEY.in_(portion)
        connection.execute(update(tables.event).where(same).values(change_number=change_number))


def _write_names(
    connection: Connection,
    events: Mapping[EventKey, FleetEvent],
    shown: Mapping[EventKey, LatestReport],
    change_number: int,
) -> None:
    """Replace the stored resource names of events, and mark the VMs that an event no longer names
    as changed.
    """
    r = tables.resource.c
    before: dict[EventKey, set[str]] = {}
    for row in rows_in(connection, select(tables.resource), tuple_(r.event_id, r.scope), events):
        before.setdefault(rows.key_of(row), set()).add(row.name_key)
    new = []
    for key, event in events.items():
        names = {name_key(name) for name in shown[key].report.event.resources}
        had = before.get(key, set())
        values = {"event_id": event.event_id, "scope": event.scope}
        new += [{**values, "name_key": name} for name in sorted(names - had)]
        for dropped in portions(sorted(had - names)):
            same = (r.event_id == event.event_id, r.scope == event.scope, r.name_key.in_(dropped))
            connection.execute(delete(tables.resource).where(*same))
            _note_dropped(connection, event, dropped, change_number)
    insert_new(connection, tables.resource, new)


def _write_places(connection: Connection, shown: Mapping[EventKey, LatestReport]) -> None:
    """Replace the places of these events by those of the reporters that report what is shown.
    Within a place the names that an event lists are unique.
    """
    p = tables.event_place.c
    places: list[dict[str, str]] = []
    for portion in portions(shown, PAIRS_AT_ONCE):
        same = tuple_(p.event_id, p.scope).in_(portion)
        connection.execute(delete(tables.event_place).where(same))
        query = (
            select(_REPORT.event_id, _REPORT.scope, _REPORT.content_hash, _VM.place)
            .join(tables.vm, _VM.vm_id == _REPORT.vm_id)
            .where(tuple_(_REPORT.event_id, _REPORT.scope).in_(portion))
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
    connection: Connection, event: FleetEvent, names: Collection[str], change_number: int
) -> None:
    """Mark the VMs as changed that the event no longer names."""
    p = tables.event_place.c
    places = select(p.place).where(p.event_id == event.event_id, p.scope == event.scope)
    dropped = update(tables.vm).where(_VM.place.in_(places), _VM.name_key.in_(names))
    connection.execute(dropped.values(change_number=change_number))


def _delete_events(connection: Connection, keys: Iterable[EventKey]) -> None:
    """Delete events that have no reporter any more: their reports belong to another event now."""
    for key in keys:
        for table in (tables.resource, tables.event_place, tables.event):
            same = and_(table.c.event_id == key.event_id, table.c.scope == key.scope)
            connection.execute(delete(table).where(same))
