"""How far each partition of a hub has been read."""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from console.store import tables


class Checkpoint(Protocol):
    """A place in a partition."""

    @property
    def hub(self) -> str: ...  # noqa: D102
    @property
    def consumer_group(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> str: ...  # noqa: D102
    @property
    def offset(self) -> str: ...  # noqa: D102
    @property
    def sequence_number(self) -> int: ...  # noqa: D102


def write_checkpoint(connection: Connection, checkpoint: Checkpoint) -> None:
    """Note how far a partition has been read, in the transaction of its records."""
    values = {
        "hub": checkpoint.hub,
        "consumer_group": checkpoint.consumer_group,
        "partition": checkpoint.partition,
        "offset": checkpoint.offset,
        "sequence_number": checkpoint.sequence_number,
    }
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(tables.checkpoint).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["hub", "consumer_group", "partition"],
            set_={
                "offset": statement.excluded.offset,
                "sequence_number": statement.excluded.sequence_number,
            },
        )
    )
