"""The SDK's checkpoint store in our own database: a checkpoint is committed with its records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from azure.eventhub.aio import CheckpointStore

from console.db.connection.opening import Database
from console.db.sources.checkpoints import (
    PartitionClaim,
    claimed,
    read_checkpoints,
    read_claims,
    write_claims,
)

Fields = dict[str, Any]


class Checkpoints(CheckpointStore):
    """Implements the SDK's checkpoint store. The writer writes the checkpoints, not this class."""

    def __init__(self, database: Database, source: str) -> None:
        self._database = database
        self._source = source
        # A SQLite file has one console, so its claims stay in memory; and after kill -9 it does
        # not wait for its own claims to end.
        self._own: dict[str, PartitionClaim] | None = {} if database.is_sqlite else None

    async def list_ownership(
        self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str, **_: Any
    ) -> Iterable[Fields]:
        """Return who reads which partition."""
        hub = f"{fully_qualified_namespace}/{eventhub_name}"
        if self._own is not None:
            claims = list(self._own.values())
        else:
            claims = await asyncio.to_thread(
                read_claims, self._database.reading, hub, consumer_group
            )
        return [_ownership(claim) for claim in claims]

    async def claim_ownership(self, ownership_list: Iterable[Fields], **_: Any) -> Iterable[Fields]:
        """Claim partitions; return the claims that succeeded. Another console may have been
        quicker.
        """
        wanted = [_claim(fields) for fields in ownership_list]
        if self._own is None:
            got = await asyncio.to_thread(
                write_claims, self._database.writing, wanted, source=self._source
            )
        else:
            got = [claimed(claim, time.time()) for claim in wanted]
            self._own.update((claim.partition, claim) for claim in got)
        return [_ownership(claim) for claim in got]

    async def update_checkpoint(self, checkpoint: Fields, **_: Any) -> None:
        """Do nothing: the writer has committed it with the records."""

    async def list_checkpoints(
        self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str, **_: Any
    ) -> Iterable[Fields]:
        """Return how far each partition has been read."""
        hub = f"{fully_qualified_namespace}/{eventhub_name}"
        rows = await asyncio.to_thread(
            read_checkpoints, self._database.reading, hub, consumer_group
        )
        return [
            {
                "fully_qualified_namespace": fully_qualified_namespace,
                "eventhub_name": eventhub_name,
                "consumer_group": consumer_group,
                "partition_id": row.partition,
                "offset": row.offset,
                "sequence_number": row.sequence_number,
            }
            for row in rows
        ]


def _ownership(claim: PartitionClaim) -> Fields:
    namespace, _, name = claim.hub.partition("/")
    return {
        "fully_qualified_namespace": namespace,
        "eventhub_name": name,
        "consumer_group": claim.consumer_group,
        "partition_id": claim.partition,
        "owner_id": claim.owner_id,
        "etag": claim.etag,
        "last_modified_time": claim.modified_at,
    }


def _claim(fields: Fields) -> PartitionClaim:
    return PartitionClaim(
        hub=f"{fields['fully_qualified_namespace']}/{fields['eventhub_name']}",
        consumer_group=fields["consumer_group"],
        partition=fields["partition_id"],
        owner_id=fields["owner_id"],
        etag=fields.get("etag"),
    )
