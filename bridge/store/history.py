"""The last records, and the next ones as they are committed, for the HTTP API."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.store.database import Store
from wire.record import BRIDGE_HEARTBEAT, Record

MAX_RECORDS: Final = 1_000
"""How many records are read at once; the store keeps about as many delivered ones."""
MAX_BYTES: Final = 1 << 20
"""The size of the records of one answer: it is in memory until its reader has it."""
PATIENCE_SECONDS: Final = 1.0
"""How long a reader waits for a busy store, such as one whose disk does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecord:
    """A record of the history, as it is stored."""

    sequence: int
    body: bytes


class History:
    """The records of one store except heartbeats, the oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._closed = False

    @property
    def stream(self) -> str:
        """The id of the store that counts the records."""
        return self._store.stream

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the newest record that is not a heartbeat; 0 in an empty store."""
        return self._store.last_record_sequence

    def oldest_sequence(self) -> int:
        """Return the sequence of the oldest record that is kept; 0 for none. Raises
        `StoreError`.
        """
        rows = self._store.read("SELECT min(sequence) FROM records", patience=PATIENCE_SECONDS)
        return rows[0][0] or 0

    def last(self, count: int) -> list[KeptRecord]:
        """Return the newest records, as many as fit an answer. Raises `StoreError`."""
        return self._read("sequence > ? ORDER BY sequence DESC", 0, count)[::-1]

    def after(self, sequence: int, count: int) -> list[KeptRecord]:
        """Return the first records after a sequence, as many as fit an answer. Raises
        `StoreError`.
        """
        return self._read("sequence > ? ORDER BY sequence", sequence, count)

    def wait(self, sequence: int, seconds: float) -> bool:
        """Wait for a record after that sequence; return False if none came in so many seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self.last_sequence > sequence, timeout=seconds
            )
            return not self._closed and self.last_sequence > sequence

    @property
    def is_closed(self) -> bool:
        """Whether no more records will come."""
        return self._closed

    def note_committed(self, _records: Sequence[Record]) -> None:
        """Wake the readers that wait: there are new records."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End every wait: no more records will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _read(self, which: str, sequence: int, count: int) -> list[KeptRecord]:
        rows = self._store.read(
            f"SELECT sequence, crc, body FROM records WHERE type != ? AND {which} LIMIT ?",  # noqa: S608  # ours
            (BRIDGE_HEARTBEAT, sequence, min(count, MAX_RECORDS)),
            patience=PATIENCE_SECONDS,
        )
        return _fitting(rows)


def _fitting(rows: Iterable[tuple[int, int, bytes]]) -> list[KeptRecord]:
    """Return the valid records up to the size of an answer, at least one."""
    found = list[KeptRecord]()
    room = MAX_BYTES
    for sequence, crc, body in rows:
        if isinstance(body, bytes) and zlib.crc32(body) == crc:
            room -= len(body)
            if found and room < 0:
                break
            found.append(KeptRecord(sequence=sequence, body=body))
    return found
