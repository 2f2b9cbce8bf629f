"""How far each partition of a hub is read, and by which console."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from sqlalchemy import select
from support.console.records import FakeVm
from support.console.writer_bench import WriterBench, received

from console.db.connection.opening import Database
from console.db.schema.tables import ownership
from console.db.sources.checkpoints import (
    Checkpoint,
    PartitionClaim,
    read_checkpoints,
    read_claims,
    write_claims,
)


def test_a_checkpoint_is_committed_with_its_records(
    database: Database, writer_bench: WriterBench
) -> None:
    """A checkpoint is committed together with its records, and never goes back when a console is
    late that has lost the partition.
    """
    place = {"hub": "ns/hub", "consumer_group": "g", "partition": "0"}
    for number in (5, 9, 7):
        checkpoint = Checkpoint(**place, offset=str(number), sequence_number=number)
        writer_bench.take(received(FakeVm().event(f"E{number}")), checkpoint=checkpoint)
    rows = read_checkpoints(database.reading, "ns/hub", "g")
    assert [(row.partition, row.offset) for row in rows] == [("0", "9")]


def test_a_partition_is_claimed_by_one(database: Database) -> None:
    """Of two consoles that claim a partition at once, one gets it; only its etag allows a change of
    the claim.
    """
    if database.is_sqlite:
        pytest.skip("a SQLite file has one console, which keeps its claims in memory")
    claim = PartitionClaim(hub="ns/hub", consumer_group="g", partition="0", owner_id="one")
    got = write_claims(database.writing, [claim], source="hub")
    assert [each.owner_id for each in got] == ["one"]
    assert write_claims(database.writing, [claim], source="hub") == []
    other = PartitionClaim(
        hub="ns/hub", consumer_group="g", partition="0", owner_id="two", etag="wrong"
    )
    assert write_claims(database.writing, [other], source="hub") == []
    (kept,) = read_claims(database.reading, "ns/hub", "g")
    assert (kept.owner_id, kept.etag) == ("one", got[0].etag)


def test_a_partition_is_read_since_another_console_took_it(database: Database) -> None:
    """A claim keeps since when its console reads the partition: a renewal does not change that, and
    another console begins anew.
    """
    if database.is_sqlite:
        pytest.skip("a SQLite file has one console, which keeps its claims in memory")
    claim = PartitionClaim(hub="ns/hub", consumer_group="g", partition="0", owner_id="one")

    def taken_at() -> float:
        with database.reading.begin() as connection:
            found: float = connection.execute(select(ownership.c.taken_at)).scalar_one()
            return found

    (got,) = write_claims(database.writing, [claim], source="hub")
    first = taken_at()
    (renewed,) = write_claims(database.writing, [got], source="hub")
    assert taken_at() == first
    write_claims(database.writing, [replace(renewed, owner_id="two")], source="hub")
    assert taken_at() > first


@pytest.mark.parametrize("apart", [-3600.0, 3600.0])
def test_a_claim_is_as_old_to_a_machine_whose_clock_is_wrong(
    database: Database, apart: float
) -> None:
    """A console whose clock is an hour off neither takes a claimed partition nor waits longer for a
    free one.
    """
    if database.is_sqlite:
        pytest.skip("a SQLite file has one console, which keeps its claims in memory")
    claim = PartitionClaim(hub="ns/hub", consumer_group="g", partition="0", owner_id="one")
    write_claims(database.writing, [claim], source="hub", own=lambda: time.time() + apart)
    (seen,) = read_claims(database.reading, "ns/hub", "g")
    assert abs(time.time() - seen.modified_at) < 30
    (mine,) = read_claims(database.reading, "ns/hub", "g", own=lambda: time.time() + apart)
    assert abs(time.time() + apart - mine.modified_at) < 30
