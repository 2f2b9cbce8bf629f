"""Records as server-sent events, as they are committed; the number of readers is limited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from bridge.store.database import StoreError
from bridge.store.history import History, KeptRecord

MAX_STREAMS: Final = 4
"""How many clients may follow at once: each takes a thread of the server."""
LIFE_SECONDS: Final = 600
"""A stream ends after this time; browsers and `seb tail` reconnect by themselves."""
STILL_HERE_SECONDS: Final = 15
"""How often a stream without records sends a sign of life."""
_AT_ONCE: Final = 20
"""How many records are read and written at once."""
_WAIT_SECONDS: Final = 1.0
"""How often it checks whether its reader is connected."""


class TooManyError(Exception):
    """Too many clients follow the records already; the message says what to do."""


class Streams:
    """The open streams."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MAX_STREAMS)

    def open(self, history: History, last: int, gone: Callable[[], bool]) -> Iterator[bytes]:
        """Yield the records after `last`, until the reader is gone. Raises `TooManyError`."""
        if not self._free.acquire(blocking=False):
            raise TooManyError(
                f"{MAX_STREAMS} clients follow the records already; ask without text/event-stream"
            )
        return _Stream(self._follow(history, last, gone), self._free.release)

    def _follow(self, history: History, last: int, gone: Callable[[], bool]) -> Iterator[bytes]:
        # An id to resume from, even for a reader that has received no record yet.
        stream = history.stream.encode()
        yield b"retry: 2000\nid: %s/%d\n\n" % (stream, last)
        end = time.monotonic() + LIFE_SECONDS
        silent_since = time.monotonic()
        while time.monotonic() < end and not (gone() or history.is_closed):
            if records := _next(history, last):
                last = records[-1].sequence
                silent_since = time.monotonic()
                # A record is one line: canonical JSON has no line breaks.
                yield b"".join(
                    b"id: %s/%d\nevent: record\ndata: %s\n\n" % (stream, each.sequence, each.body)
                    for each in records
                )
            elif not history.wait(last, _WAIT_SECONDS) and (
                time.monotonic() - silent_since >= STILL_HERE_SECONDS
            ):
                silent_since = time.monotonic()
                yield b": still here\n\n"


class _Stream(Iterator[bytes]):
    """Releases its place when the server closes it, even if it was never read."""

    def __init__(self, parts: Iterator[bytes], release: Callable[[], None]) -> None:
        self._parts = parts
        self._release: Callable[[], None] | None = release

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        """End the stream, as WSGI requires: called when the answer is over, even after a
        failure.
        """
        release = self._release
        self._release = None
        if release is not None:
            release()


def resumed(history: History, last_event_id: str | None, after: int | None) -> int:
    """Return the sequence of the last record that a reader has already, or the newest; 0 for a
    reader of another store.
    """
    if last_event_id is None:
        return history.last_sequence if after is None else after
    stream, _, sequence = last_event_id.rpartition("/")
    if stream != history.stream:
        return 0
    plain = sequence.isascii() and sequence.isdecimal() and len(sequence) <= 20  # noqa: PLR2004
    return min(int(sequence), history.last_sequence) if plain else 0


def _next(history: History, last: int) -> list[KeptRecord]:
    """Return the next few records; empty if the store cannot be read now, because the next try may
    succeed.
    """
    try:
        return history.after(last, _AT_ONCE)
    except StoreError:
        return []
