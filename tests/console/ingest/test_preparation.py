"""The preparations of VMs, as their records, states and statuses report them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from support.console.records import FakeVm

from console.db.batches.batch_transaction import write_batch
from console.db.connection.opening import Database
from console.db.connection.transactions import next_change_number
from console.db.events.past_records import records_of_event
from console.db.schema import tables
from console.db.snapshot import Snapshots
from console.fleet.timeline import timeline_item
from console.fleet.values.keys import EventKey
from console.records.incoming import IncomingMessage, IncomingRecord
from console.records.parse import ForeignError, parse_record, parse_state, parse_status
from wire.record import PREPARATION, Record
from wire.strictjson import canonical_json

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
EVENT = "EVENT-1"


def preparation_record(
    vm: FakeVm, state: str, *, seconds: float = 0, evh: str = "sha256:a"
) -> Record:
    """Return a record about a preparation."""
    data = {"evt": EVENT, "evh": evh, "sink": "drain", "cause": "deadline", "reason": None}
    return vm.record(PREPARATION, data | {"state": state}, now=NOW + timedelta(seconds=seconds))


def read(record: Record) -> IncomingRecord:
    """Return it as a source passes it on."""
    return parse_record(record.body, source="web", received_at=NOW.timestamp() + 60)


def stored(database: Database, *batch: IncomingMessage) -> list[tuple[str, str]]:
    """Commit a batch; return fingerprint and state of every preparation after that."""
    with database.writing.begin() as connection:
        change_number = next_change_number(connection)
        write_batch(connection, batch, change_number, now=NOW.timestamp())
        p = tables.preparation.c
        found = connection.execute(select(p.fingerprint, p.state).order_by(p.vm_id))
        return [(row.fingerprint, row.state) for row in found]


def test_the_newest_record_of_a_vm_counts(database: Database) -> None:
    """Late records and copies do not change a newer preparation."""
    vm = FakeVm()
    stored(database, read(vm.event(EVENT, now=NOW)))
    words = ("preparing", "prepared", "recovered")
    first, second, third = (preparation_record(vm, word, seconds=n) for n, word in enumerate(words))
    assert stored(database, read(second)) == [("sha256:a", "prepared")]
    assert stored(database, read(first)) == [("sha256:a", "prepared")]
    assert stored(database, read(second), read(third)) == [("sha256:a", "recovered")]
    with database.reading.begin() as connection:
        found = records_of_event(connection, EventKey(event_id=EVENT, scope="sub-1/group-1"))
    items = [timeline_item(each) for each in found]
    told_of = [each.state for each in items if each.kind == "preparation"]
    assert told_of == ["preparing", "prepared", "recovered"]


def test_another_store_of_the_vm_counts_by_time(database: Database) -> None:
    """After a VM has lost its disk, its preparations are ordered by time, because its sequences
    begin with one again.
    """
    vm = FakeVm()
    stored(
        database,
        read(preparation_record(vm, "preparing")),
        read(preparation_record(vm, "prepared")),
    )
    again = FakeVm(stream="another")
    assert stored(database, read(preparation_record(again, "failed", seconds=5))) == [
        ("sha256:a", "failed")
    ]


def state_of(vm: FakeVm, preparation: str | None, *, seconds: float) -> IncomingMessage:
    """Return a state document with one event."""
    record = FakeVm().event(EVENT, now=NOW)
    body: dict[str, Any] = json.loads(vm.state(record))
    body["time"] = (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    body["events"][0]["preparation"] = preparation
    return parse_state(
        canonical_json(body),
        source="mqtt",
        received_at=NOW.timestamp() + 60,
        vm_id=vm.vm_id,
        site="default",
    )


def test_a_state_document_fills_in_missing_records(database: Database) -> None:
    """A state document adds a preparation whose records were missed, and an older one changes
    nothing.
    """
    vm = FakeVm()
    fingerprint = FakeVm().event(EVENT, now=NOW).data["fingerprint"]
    assert stored(database, state_of(vm, "none", seconds=0)) == []
    assert stored(database, state_of(vm, "preparing", seconds=1)) == [(fingerprint, "preparing")]
    recovered = read(preparation_record(vm, "recovered", seconds=9, evh=fingerprint))
    assert stored(database, recovered) == [(fingerprint, "recovered")]
    assert stored(database, state_of(vm, "prepared", seconds=5)) == [(fingerprint, "recovered")]
    assert stored(database, state_of(vm, "prepared", seconds=20)) == [(fingerprint, "prepared")]


def test_a_vm_that_lost_what_it_prepared_says_none(database: Database) -> None:
    """After `none` in a state document a VM is not prepared for that state of the event any more,
    and has not recovered. A preparation for another state stays.
    """
    vm = FakeVm()
    fingerprint = FakeVm().event(EVENT, now=NOW).data["fingerprint"]
    stored(database, read(preparation_record(vm, "prepared", evh="sha256:b")))
    assert stored(database, state_of(vm, "none", seconds=5)) == [("sha256:b", "prepared")]
    stored(database, read(preparation_record(vm, "prepared", seconds=6, evh=fingerprint)))
    assert stored(database, state_of(vm, "none", seconds=3)) == [(fingerprint, "prepared")]
    assert stored(database, state_of(vm, "none", seconds=7)) == [("", "prepared")]


def test_a_vm_with_a_new_store_has_prepared_nothing(database: Database) -> None:
    """The first record of a new store ends the VM's preparations; that of an earlier copy of the
    store does not.
    """
    vm = FakeVm()
    announced = read(vm.event(EVENT, now=NOW))
    prepared = read(preparation_record(vm, "prepared", seconds=1))
    stored(database, announced, prepared)
    again = FakeVm(stream="another")
    started = read(again.started(now=NOW + timedelta(seconds=9)))
    assert stored(database, started) == [("sha256:a", "recovered")]
    assert stored(database, prepared) == [("sha256:a", "recovered")]


@pytest.mark.parametrize("what_came_first", ["the reset", "a later record"])
def test_a_vm_whose_store_was_damaged_has_not_recovered(
    database: Database, what_came_first: str
) -> None:
    """If a new store begins with the record that the former one was lost, the VM is not prepared
    any more, and counts as away until it has recovered; also before that record has come in.
    """
    vm = FakeVm()
    stored(
        database,
        read(vm.event(EVENT, now=NOW)),
        read(preparation_record(vm, "prepared", seconds=1)),
    )
    again = FakeVm(stream="another")
    reset = read(again.store_reset(now=NOW + timedelta(seconds=9)))
    beat = read(again.heartbeat(now=NOW + timedelta(seconds=10)))
    records = [reset, beat] if what_came_first == "the reset" else [beat, reset]
    for each in records:
        assert stored(database, each) == [("", "prepared")]
    assert stored(database, read(preparation_record(again, "recovered", seconds=11))) == [
        ("sha256:a", "recovered")
    ]


def test_a_vm_that_was_made_again_recovers_once_its_first_record_comes_in(
    database: Database,
) -> None:
    """If a later record of a new store comes in before the first one, the VM counts as away until
    the first one says that no store was lost.
    """
    vm = FakeVm()
    stored(
        database,
        read(vm.event(EVENT, now=NOW)),
        read(preparation_record(vm, "prepared", seconds=1)),
    )
    again = FakeVm(stream="another")
    first = read(again.started(now=NOW + timedelta(seconds=9)))
    beat = read(again.heartbeat(now=NOW + timedelta(seconds=10)))
    assert stored(database, beat) == [("", "prepared")]
    assert stored(database, first) == [("", "recovered")]


def test_what_was_prepared_counts_for_no_event_that_comes_back(database: Database) -> None:
    """A preparation for an event that has ended does not count when it comes back, and the VM is
    away until it has recovered.
    """
    vm = FakeVm()
    first = vm.event(EVENT, now=NOW)
    evh = first.data["fingerprint"]
    stored(database, read(first), read(preparation_record(vm, "prepared", seconds=1, evh=evh)))
    ended = vm.event(EVENT, transition="ended", status="Canceled", now=NOW + timedelta(seconds=2))
    assert stored(database, read(ended)) == [("", "prepared")]
    back = vm.event(EVENT, now=NOW + timedelta(seconds=3))
    assert stored(database, read(back)) == [("", "prepared")]
    again = read(preparation_record(vm, "prepared", seconds=4, evh=evh))
    assert stored(database, again) == [(evh, "prepared")]


def test_whether_a_vm_prepares(database: Database) -> None:
    """Status, heartbeat and the record of a start say whether a VM prepares."""
    snapshots = Snapshots(database)
    vm = FakeVm()

    def prepares() -> bool:
        with snapshots.open() as snapshot:
            heard = snapshot.vms.find_vm(vm.vm_id)
        return heard is not None and heard.vm.prepares

    def status(**more: Any) -> IncomingMessage:
        return parse_status(
            vm.status(**more),
            source="mqtt",
            received_at=NOW.timestamp(),
            vm_id=vm.vm_id,
            site="default",
        )

    stored(database, read(vm.event("OTHER", now=NOW)))
    assert not prepares()
    stored(database, status(prepares=True))
    assert prepares()
    stored(database, status())
    assert not prepares()
    stored(database, read(vm.heartbeat(now=NOW + timedelta(seconds=9), prepares=True)))
    assert prepares()
    stored(database, read(vm.event("OTHER", now=NOW + timedelta(seconds=10))))
    assert prepares()


def test_a_preparation_with_an_unknown_state_is_quarantined() -> None:
    """A record of a preparation with an unknown state goes to quarantine."""
    with pytest.raises(ForeignError):
        read(preparation_record(FakeVm(), "done"))
