"""Writes what changes because time has passed, although nothing came in."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, and_, func, literal, or_, select

from console.db import rows
from console.db.bulk import upsert
from console.db.events.event_reports import reports_by
from console.db.events.shown_events import write_events
from console.db.schema.tables import event, report, vm
from console.db.sources.listening import read_listening
from console.db.upkeep.time_correction import correct_future_times
from console.db.vms.contact import contact_of
from console.db.vms.vm_updates import retire_deleted
from console.fleet.batch import ReporterKey
from console.fleet.contact import BY_HEARTBEATS, Listening, SilentTime
from console.fleet.reports import ended_as_unheard
from console.fleet.values.event import OPEN

_FORGOTTEN_SECONDS: Final = 3600.0


def write_timed_changes(
    connection: Connection,
    change_number: int,
    *,
    now: float,
    silent_time: SilentTime = BY_HEARTBEATS,
) -> bool:
    """Write what changes because time has passed; return whether anything has."""
    listening = read_listening(connection, now, silent_time)
    corrected = correct_future_times(connection, now=now, change_number=change_number)
    moved = _replace_silent_reporters(
        connection, now=now, listening=listening, change_number=change_number
    )
    retired = retire_deleted(connection, now=now, listening=listening, change_number=change_number)
    ended = _end_forgotten(connection, now=now, listening=listening, change_number=change_number)
    return bool(corrected or moved or retired or ended)


def _replace_silent_reporters(
    connection: Connection, *, now: float, listening: Listening, change_number: int
) -> int:
    """Choose another reporter for the open events whose own has fallen silent; return how many.

    It is one query for all of them: when a whole fleet falls silent they are thousands, and
    incoming messages wait for this transaction.
    """
    heard = contact_of(vm, now, listening) == "heard"
    shown = and_(
        report.c.event_id == event.c.event_id,
        report.c.vm_id == event.c.shown_by,
        report.c.scope == event.c.scope,
    )
    other = report.alias("other")
    same = and_(other.c.event_id == event.c.event_id, other.c.scope == event.c.scope)
    speaker = vm.alias("speaker")
    is_reported = (
        select(literal(1))
        .select_from(other)
        .join(speaker, speaker.c.vm_id == other.c.vm_id)
        .where(same, other.c.is_own == 1, contact_of(speaker, now, listening) == "heard")
        .correlate(event)
        .exists()
    )
    newest = (
        select(other.c.vm_id)
        .where(same)
        .order_by(other.c.is_weak, other.c.time.desc(), other.c.vm_id)
        .limit(1)
        .correlate(event)
        .scalar_subquery()
    )
    query = (
        select(event.c.event_id, event.c.scope)
        .join(report, shown)
        .join(vm, vm.c.vm_id == event.c.shown_by)
        .where(event.c.state.in_(OPEN), ~and_(heard, report.c.is_own == 1))
        .where(or_(is_reported, and_(report.c.is_own == 1, newest != event.c.shown_by)))
    )
    moved = [rows.key_of(row) for row in connection.execute(query)]
    write_events(connection, moved, {}, now=now, listening=listening, change_number=change_number)
    return len(moved)


def _end_forgotten(
    connection: Connection, *, now: float, listening: Listening, change_number: int
) -> int:
    """End events as Unknown if an hour after their notBefore no heard VM reports them any more;
    return how many. A VM that may have sent something while no console was connected counts as
    heard.
    """
    heard = contact_of(vm, now, listening).in_(("heard", "late", "learning"))
    is_pending = and_(
        report.c.event_id == event.c.event_id, report.c.scope == event.c.scope, report.c.over == 0
    )
    reported = (
        select(literal(1))
        .select_from(report)
        .join(vm, vm.c.vm_id == report.c.vm_id)
        .where(is_pending, heard)
        .correlate(event)
    )
    begins = func.coalesce(event.c.not_before, event.c.started_at, event.c.shown_at)
    query = select(event.c.event_id, event.c.scope, event.c.shown_by).where(
        event.c.state.in_(OPEN), begins < now - _FORGOTTEN_SECONDS
    )
    found = connection.execute(query.where(~reported.exists())).all()
    shown = reports_by(connection, {rows.key_of(row): row.shown_by for row in found}, {})
    ended = [ended_as_unheard(each, now) for each in shown.values()]
    upsert(connection, report, [rows.report_row(each, change_number) for each in ended])
    incoming = {ReporterKey(each.event_id, each.vm_id): each for each in ended}
    write_events(
        connection, list(shown), incoming, now=now, listening=listening, change_number=change_number
    )
    return len(shown)
