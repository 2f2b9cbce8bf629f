"""The last records as they were committed, for whoever looks at this bridge, and the next ones as
they come. It only reads, and holds up nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from bridge.batch import COLUMNS, read_batch
from bridge.store import Store
from sinks.record import BRIDGE_HEARTBEAT, EventRecord

MOST: Final = 1_000
"""How many records are read at once; the store keeps about as many delivered ones."""


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

    def last(self, count: int) -> list[EventRecord]:
        """The newest records. Raises `StoreError`."""
        rows = self._store.read(
            f"SELECT {COLUMNS} FROM (SELECT * FROM records WHERE type != ? "  # noqa: S608  # ours
            "ORDER BY sequence DESC LIMIT ?) AS records ORDER BY sequence",
            (BRIDGE_HEARTBEAT, min(count, MOST)),
        )
        return _readable(rows)

    def after(self, sequence: int, count: int) -> list[EventRecord]:
        """The first records past a sequence. Raises `StoreError`."""
        rows = self._store.read(
            f"SELECT {COLUMNS} FROM records WHERE sequence > ? AND type != ? "  # noqa: S608  # ours
            "ORDER BY sequence LIMIT ?",
            (sequence, BRIDGE_HEARTBEAT, min(count, MOST)),
        )
        return _readable(rows)

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

    def committed(self) -> None:
        """There may be something new."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will come; whoever waits goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _readable(rows: Sequence[tuple[object, ...]]) -> list[EventRecord]:
    """The records whose bytes are those that were committed; the outbox parks the others."""
    batches = (read_batch([row]) for row in rows)
    return [each.records[0] for each in batches if each is not None and each.damaged is None]
