"""What pages and API read from the database: what changed, and what is past."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from console.fleet.values import Command, Decision, Event, Receipt, Sighting, Vm
from console.store import decisions, rows, tables
from console.store.asked import asked_since
from console.store.decision_tables import command, decision
from console.store.enrolment import generations_since
from console.store.statements import select_newer

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
    decisions: list[Decision] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    told: list[tuple[Command, list[Receipt]]] = field(default_factory=list)
    """Commands that changed or were answered, each with all its receipts."""
    asked: dict[str, float] = field(default_factory=dict)
    """When VMs last asked the HTTPS channel, by vmId."""
    generations: dict[str, int] = field(default_factory=dict)
    """Of the secrets of VMs, by vmId."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed that is kept in memory."""
        of_records = self.vms or self.events or self.sightings or self.receipts
        decided = self.decisions or self.commands
        return not (of_records or decided or self.asked or self.generations)


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
    news.asked = asked_since(connection, 0)
    news.generations = generations_since(connection, 0)
    undone = [each.event_id for each in decisions.read_all_open(connection)]
    add_decided(connection, news, {*event_ids, *undone})
    return news


def since(connection: Connection, number: int, known: Iterable[str]) -> News:
    """What changed after the transaction of that number; `known` are the open events in memory."""
    news = News(number=newest_number(connection))
    if news.number == number:
        return news
    news.vms = [rows.vm_of(row) for row in select_newer(connection, tables.vm, number)]
    news.events = [rows.event_of(row) for row in select_newer(connection, tables.event, number)]
    in_memory = set(known)
    returned = [
        event.event_id
        for event in news.events
        if event.state != "ended" and event.event_id not in in_memory
    ]
    for row in select_newer(connection, tables.sighting, number):
        news.sightings.setdefault(row.event_id, []).append(rows.sighting_of(row))
    news.sightings |= sightings_of(connection, returned)
    news.receipts = receipts_of(connection, returned)
    got = {receipt.record_id for receipt in news.receipts}
    for row in select_newer(connection, tables.receipt, number):
        if row.record_id not in got:
            news.receipts.append(rows.receipt_of(row))
    add_beside(connection, news, number)
    add_decided(connection, news, returned)
    tell_commands(connection, news)
    return news


def add_beside(connection: Connection, news: News, number: int) -> None:
    """Add what changed after a transaction and is not written by the writer of records."""
    news.asked = asked_since(connection, number)
    news.generations = generations_since(connection, number)
    news.decisions = [
        decisions.decision_of(row) for row in select_newer(connection, decision, number)
    ]
    news.commands = [decisions.command_of(row) for row in select_newer(connection, command, number)]


def add_decided(connection: Connection, news: News, event_ids: Iterable[str]) -> None:
    """All that was decided about some events."""
    for each in decisions.decided_of(connection, event_ids).values():
        news.decisions += [each.decision] if each.decision is not None else []
        news.commands += each.commands


def tell_commands(connection: Connection, news: News) -> None:
    """Find the commands that the news are about, each with all its receipts."""
    jtis = {each.facts.jti for each in news.receipts} | {each.jti for each in news.commands}
    if not jtis:
        return
    changed = {each.jti: each for each in decisions.commands_of(connection, jtis)}
    receipts = decisions.receipts_of(connection, list(changed))
    news.told = [
        (each, [receipt for receipt in receipts if receipt.facts.jti == jti])
        for jti, each in changed.items()
    ]


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


def _chunks(values: list[str]) -> Iterable[list[str]]:
    for start in range(0, len(values), _IN):
        yield values[start : start + _IN]
