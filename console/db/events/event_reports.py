"""Reads the reports of events: those that a person sees, and those from which the reporter is
chosen that an event is shown by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, func, select, tuple_

from console.db import rows
from console.db.bulk import PAIRS_AT_ONCE, portions, rows_in
from console.db.schema import tables
from console.db.vms.contact import contact_of
from console.fleet.batch import ReporterKey
from console.fleet.contact import Listening
from console.fleet.reporter_choice import NamedReport, ReportCount
from console.fleet.values.keys import EventKey, name_key
from console.fleet.values.report import LatestReport

_REPORT: Final = tables.report.c
_VM: Final = tables.vm.c
_REPORT_KEY: Final = tuple_(_REPORT.event_id, _REPORT.scope)


def latest_reports(connection: Connection, key: EventKey) -> list[LatestReport]:
    """Return the latest report of every reporter of an event, the oldest first."""
    wanted = (
        select(tables.report)
        .where(_REPORT.event_id == key.event_id, _REPORT.scope == key.scope)
        .order_by(_REPORT.time, _REPORT.vm_id)
    )
    return [rows.report_of(row) for row in connection.execute(wanted)]


def reports_of_named_vms(
    connection: Connection, keys: Iterable[EventKey]
) -> dict[EventKey, list[LatestReport]]:
    """Return, by event, the latest reports of the VMs that the event names."""
    found: dict[EventKey, list[LatestReport]] = {}
    query = select(tables.report).where(_REPORT.is_own == 1)
    for row in rows_in(connection, query, _REPORT_KEY, keys):
        found.setdefault(rows.key_of(row), []).append(rows.report_of(row))
    return found


def pending_of(connection: Connection, vm_ids: Iterable[str]) -> set[EventKey]:
    """Return the events that one of these VMs reports, that name it, and that are not
    over for it.
    """
    query = select(_REPORT.event_id, _REPORT.scope).where(_REPORT.over == 0, _REPORT.is_own == 1)
    found = rows_in(connection, query, _REPORT.vm_id, vm_ids)
    return {rows.key_of(row) for row in found}


def named_reports(
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
        select(*columns, _VM.name_since, _VM.site, _VM.name_key, _VM.place, contact)
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
                name_key=row.name_key,
                place=row.place,
            )
        )
    return found


def with_resources(
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
            map(name_key, rows.report_of(row).report.event.resources)
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


def count_reports(
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
        select(*columns, func.count().label("reporters"))
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
                count=row.reporters,
            )
        )
    return found


def newest_reporters(connection: Connection, keys: Iterable[EventKey]) -> dict[EventKey, str]:
    """Return the reporter with the newest report of each of these events, if it has one."""
    rank = func.row_number().over(
        partition_by=(_REPORT.event_id, _REPORT.scope),
        order_by=(_REPORT.is_weak, _REPORT.time.desc(), _REPORT.vm_id),
    )
    found: dict[EventKey, str] = {}
    for portion in portions(keys, PAIRS_AT_ONCE):
        ranked = select(_REPORT.event_id, _REPORT.scope, _REPORT.vm_id, rank.label("rank"))
        ranked = ranked.where(tuple_(_REPORT.event_id, _REPORT.scope).in_(portion))
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
