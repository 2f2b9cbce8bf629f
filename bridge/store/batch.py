"""The records that a sink gets in one delivery. A corrupt record is never delivered."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from wire.record import Record, RecordError, read_record

COLUMNS: Final = "sequence, type, affects, id, records.time, crc, body"
"""The columns of `records` that `read_batch` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records for one delivery, and the cursor after it."""

    records: tuple[Record, ...]
    cursor: int
    again: bool = False
    """Whether a person asked to try these dead records again."""
    damaged: str | None = None
    """Why the one record of the batch is corrupt: it is marked as dead, not delivered."""


def read_batch(
    rows: Sequence[tuple[Any, ...]], *, end: int = 0, again: bool = False
) -> Batch | None:
    """Return the records up to the first corrupt one; a corrupt one is a batch of its own."""
    records: list[Record] = []
    for row in rows:
        record, damage = _read_row(row)
        if damage is not None:
            if not records:
                return Batch(records=(record,), cursor=row[0], again=again, damaged=damage)
            return Batch(records=tuple(records), cursor=records[-1].sequence, again=again)
        records.append(record)
    return Batch(records=tuple(records), cursor=end, again=again) if records else None


def _read_row(row: tuple[Any, ...]) -> tuple[Record, str | None]:
    """Return the record, and what is wrong with it; a corrupt one has only its columns."""
    sequence, kind, _, record_id, time, crc, body = row
    damage = "checksum mismatch: the stored record is corrupt"
    if isinstance(body, bytes) and zlib.crc32(body) == crc:
        try:
            return read_record(body), None
        except RecordError as error:
            damage = str(error)
    unreadable = Record(
        body=b"",
        id=record_id,
        type=kind,
        source="",
        subject="",
        time=time,
        sequence=sequence,
        stream="",
        partition_key="",
        data={},
    )
    return unreadable, damage
