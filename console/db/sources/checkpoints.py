"""Checkpoints and claims: how far each partition of a hub has been read, and by which console."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, Row, case, func, select, update
from sqlalchemy.dialects import postgresql

from console.db.bulk import insert_of
from console.db.schema import tables

RENEWAL_SECONDS: Final = 2.0
"""The time between two renewals of a claim, or a little more."""
_UNREAD_SECONDS: Final = 3 * RENEWAL_SECONDS
"""If a claim was not renewed for this long, the console assumes that nobody reads the partition."""
_GONE_SECONDS: Final = 600.0
"""If the claim of a partition was not renewed for this long, and others of its hub were, the hub
has no such partition any more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a partition has been read; committed with the records up to that position."""

    hub: str
    consumer_group: str
    partition: str
    offset: str
    sequence_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClaim:
    """A reader's claim of a partition. `etag` changes with each claim.

    `modified_at` is by this machine's clock; the rows have the time of the database's clock,
    because the clocks of other machines may be wrong.
    """

    hub: str
    consumer_group: str
    partition: str
    owner_id: str
    etag: str | None = None
    modified_at: float = 0.0


def write_checkpoint(connection: Connection, checkpoint: Checkpoint) -> None:
    """Store how far a partition has been read, in the transaction of its records. The position
    never goes back: a console that has lost the partition may still write a batch of it.
    """
    values = {
        "hub": checkpoint.hub,
        "consumer_group": checkpoint.consumer_group,
        "partition": checkpoint.partition,
        "offset": checkpoint.offset,
        "sequence_number": checkpoint.sequence_number,
    }
    statement = insert_of(connection.dialect.name, tables.checkpoint).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["hub", "consumer_group", "partition"],
            set_={
                "offset": statement.excluded.offset,
                "sequence_number": statement.excluded.sequence_number,
            },
            where=tables.checkpoint.c.sequence_number < statement.excluded.sequence_number,
        )
    )


def read_checkpoints(engine: Engine, hub: str, consumer_group: str) -> list[Any]:
    """Return the rows of a hub: partition, offset, sequence_number."""
    c = tables.checkpoint.c
    wanted = select(tables.checkpoint).where(c.hub == hub, c.consumer_group == consumer_group)
    with engine.begin() as connection:
        return list(connection.execute(wanted))


def read_claims(
    engine: Engine, hub: str, consumer_group: str, *, own: Callable[[], float] = time.time
) -> list[PartitionClaim]:
    """Return the claims of a hub's partitions; `own` is this machine's clock."""
    c = tables.ownership.c
    columns = [c[name] for name in PartitionClaim.__slots__]
    wanted = select(*columns).where(c.hub == hub, c.consumer_group == consumer_group)
    with engine.begin() as connection:
        found = [PartitionClaim(**row._mapping) for row in connection.execute(wanted)]  # noqa: SLF001
        offset = _offset(connection, own)
    return [replace(each, modified_at=each.modified_at - offset) for each in found]


def write_claims(
    engine: Engine,
    claims: Iterable[PartitionClaim],
    *,
    source: str,
    own: Callable[[], float] = time.time,
) -> list[PartitionClaim]:
    """Claim partitions for a source; return the claims that succeeded. Another console may have
    been quicker. `own` is this machine's clock.
    """
    with engine.begin() as connection:
        offset = _offset(connection, own)
        wanted = [(claim, claimed(claim, own())) for claim in claims]
        return [made for claim, made in wanted if _is_got(connection, claim, made, offset, source)]


def _offset(connection: Connection, own: Callable[[], float]) -> float:
    """Return by how many seconds the database's clock is ahead of this machine's."""
    now = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
    return float(now) - own()


def claimed(claim: PartitionClaim, now: float) -> PartitionClaim:
    """Return a claim that is renewed now."""
    return PartitionClaim(
        hub=claim.hub,
        consumer_group=claim.consumer_group,
        partition=claim.partition,
        owner_id=claim.owner_id,
        etag=uuid4().hex,
        modified_at=now,
    )


def _is_got(
    connection: Connection,
    claim: PartitionClaim,
    made: PartitionClaim,
    offset: float,
    source: str,
) -> bool:
    c = tables.ownership.c
    modified_at = made.modified_at + offset
    if claim.etag is None:
        values = {name: getattr(made, name) for name in PartitionClaim.__slots__}
        values |= {"modified_at": modified_at, "source": source, "taken_at": modified_at}
        statement: Any = postgresql.insert(tables.ownership).values(values).on_conflict_do_nothing()
    else:
        statement = (
            update(tables.ownership)
            .where(
                c.hub == claim.hub,
                c.consumer_group == claim.consumer_group,
                c.partition == claim.partition,
                c.etag == claim.etag,
            )
            .values(
                owner_id=made.owner_id,
                etag=made.etag,
                modified_at=modified_at,
                source=source,
                taken_at=case((c.owner_id == made.owner_id, c.taken_at), else_=modified_at),
            )
        )
    return connection.execute(statement.returning(c.etag)).first() is not None


def read_since(connection: Connection, now: float) -> dict[str, float]:
    """Return, by source, since when each partition of its hub has been read by the same console.
    That is `now` if nobody reads one of them. A SQLite file has no such sources: its one console
    keeps its claims in memory.
    """
    c = tables.ownership.c
    by_source: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(select(tables.ownership).where(c.source != "")):
        by_source[row.source].append(row)
    return {source: _all_read_since(rows, now) for source, rows in by_source.items()}


def _all_read_since(claims: Iterable[Row[Any]], now: float) -> float:
    newest = max(claims, key=lambda each: each.modified_at)
    there = [
        each
        for each in claims
        # The source may have had another hub before.
        if (each.hub, each.consumer_group) == (newest.hub, newest.consumer_group)
        and each.modified_at > newest.modified_at - _GONE_SECONDS
    ]
    if any(not each.owner_id or now - each.modified_at > _UNREAD_SECONDS for each in there):
        return now
    # A time in the future was written before the clock was set back.
    return max((each.taken_at for each in there if each.taken_at <= now), default=0.0)
