"""What pages and API read from the database: what changed, and what is past."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from console.fleet.values import Event, Receipt, Sighting, Vm
from console.store import rows, tables

_IN = 500


@dataclass(slots=True, kw_only=True)
class News:
    """What was committed since a number."""

    number: int
    vms: list[Vm] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    sightings: dict[str, list[Sighting]] = field(default_factory=dict)
    """By event id."""
    receipts: list[Receipt] = field(default_factory=list)


def newest_number(connection: Connection) -> int:
    """The number of the last transaction."""
    number: int = connection.execute(select(tables.change.c.number)).scalar_one()
    return number


def everything(connection: Connection) -> News:
    """All VMs and all open events, for the start."""
    news = News(number=newest_number(connection))
    news.vms = [rows.vm_of(row) for row in connection.execute(select(tables.vm))]
    still_open = select(tables.event).where(tables.event.c.state != "ended")
    news.events = [rows.event_of(row) for row in connection.execute(still_open)]
    event_ids = [event.event_id for event in news.events]
    news.sightings = sightings_of(connection, event_ids)
    news.receipts = receipts_of(connection, event_ids)
    return news


def since(connection: Connection, number: int, known: Iterable[str]) -> News:
    """What changed after the transaction of that number; `known` are the open events in memory."""
    news = News(number=newest_number(connection))
    if news.number == number:
        return news
    news.vms = [rows.vm_of(row) for row in _changed(connection, tables.vm, number)]
    news.events = [rows.event_of(row) for row in _changed(connection, tables.event, number)]
    in_memory = set(known)
    returned = [
        event.event_id
        for event in news.events
        if event.state != "ended" and event.event_id not in in_memory
    ]
    for row in _changed(connection, tables.sighting, number):
        news.sightings.setdefault(row.event_id, []).append(rows.sighting_of(row))
    news.sightings |= sightings_of(connection, returned)
    news.receipts = receipts_of(connection, returned)
    got = {receipt.record_id for receipt in news.receipts}
    for row in _changed(connection, tables.receipt, number):
        if row.record_id not in got:
            news.receipts.append(rows.receipt_of(row))
    return news


def sightings_of(connection: Connection, event_ids: list[str]) -> dict[str, list[Sighting]]:
    """Every witness's sighting of some events, by event id."""
    found: dict[str, list[Sighting]] = {}
    for some in _chunks(event_ids):
        wanted = select(tables.sighting).where(tables.sighting.c.event_id.in_(some))
        for row in connection.execute(wanted):
            found.setdefault(row.event_id, []).append(rows.sighting_of(row))
    return found


def receipts_of(connection: Connection, event_ids: list[str]) -> list[Receipt]:
    """The receipts about some events, oldest first."""
    found: list[Receipt] = []
    for some in _chunks(event_ids):
        wanted = select(tables.receipt).where(tables.receipt.c.event_id.in_(some))
        found += [rows.receipt_of(row) for row in connection.execute(wanted)]
    return sorted(found, key=lambda receipt: receipt.at)


def _changed(connection: Connection, table: Any, number: int) -> Iterable[Any]:
    return connection.execute(select(table).where(table.c.changed > number))


def _chunks(values: list[str]) -> Iterable[list[str]]:
    for start in range(0, len(values), _IN):
        yield values[start : start + _IN]
