"""The last records as they were committed, for whoever looks at this bridge, and the next ones as
they come. It only reads, and holds up nobody.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.store.database import Store
from sinks.record import BRIDGE_HEARTBEAT, EventRecord

MOST: Final = 1_000
"""How many records are read at once; the store keeps about as many delivered ones."""
BYTES: Final = 1 << 20
"""How much of them: an answer lies in memory until its reader has it."""
PATIENCE_SECONDS: Final = 1.0
"""How long a reader waits for a store that is busy, as with a disk that does not answer."""
_COLUMNS: Final = "sequence, crc, body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A record as it lies in the store."""

    sequence: int
    body: bytes


class History:
    """The records of one store but for heartbeats, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._closed = False

    @property
    def stream(self) -> str:
        """The id of the store that counts."""
        return self._store.stream

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest record, heartbeats left out; 0 where there is none."""
        return self._store.last_record_sequence

    def oldest_sequence(self) -> int:
        """The sequence of the oldest record that is kept; 0 for none. Raises `StoreError`."""
        rows = self._store.read("SELECT min(sequence) FROM records", patience=PATIENCE_SECONDS)
        return rows[0][0] or 0

    def last(self, count: int) -> list[Kept]:
        """The newest records, as many as fit an answer. Raises `StoreError`."""
        rows = self._store.read(
            f"SELECT {_COLUMNS} FROM records WHERE type != ? "  # noqa: S608  # ours
            "ORDER BY sequence DESC LIMIT ?",
            (BRIDGE_HEARTBEAT, min(count, MOST)),
            patience=PATIENCE_SECONDS,
        )
        return _fitting(rows)[::-1]

    def after(self, sequence: int, count: int) -> list[Kept]:
        """The first records past a sequence, as many as fit an answer. Raises `StoreError`."""
        rows = self._store.read(
            f"SELECT {_COLUMNS} FROM records WHERE sequence > ? AND type != ? "  # noqa: S608  # ours
            "ORDER BY sequence LIMIT ?",
            (sequence, BRIDGE_HEARTBEAT, min(count, MOST)),
            patience=PATIENCE_SECONDS,
        )
        return _fitting(rows)

    def wait(self, sequence: int, seconds: float) -> bool:
        """Wait for a record past that sequence; False where none came, or there will be none."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self.last_sequence > sequence, timeout=seconds
            )
            return not self._closed and self.last_sequence > sequence

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed

    def committed(self, records: Sequence[EventRecord]) -> None:
        """There is something new."""
        del records
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will come; whoever waits goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _fitting(rows: Iterable[tuple[int, int, bytes]]) -> list[Kept]:
    """The records up to the size of an answer, one at least; without those whose bytes are not
    the ones that were committed, which the outbox parks.
    """
    found, room = list[Kept](), BYTES
    for sequence, crc, body in rows:
        if isinstance(body, bytes) and zlib.crc32(body) == crc:
            room -= len(body)
            if found and room < 0:
                break
            found.append(Kept(sequence=sequence, body=body))
    return found
