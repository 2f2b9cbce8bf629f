"""Records as server-sent events, as they are committed; no more readers than threads can bear."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from bridge.history import MOST, History
from sinks.record import EventRecord

MAX_STREAMS: Final = 4
"""How many may follow at once: each takes a thread of the server."""
LIFE_SECONDS: Final = 600
"""After so long a stream ends; browsers and `seb tail` come back by themselves."""
STILL_HERE_SECONDS: Final = 15
"""How often a silent stream says that it is still there."""
_LOOK_SECONDS: Final = 1.0
"""How often it looks whether its reader is."""


class TooManyError(Exception):
    """Too many follow already; the message says what to do."""


class Streams:
    """The streams that are open."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MAX_STREAMS)

    def open(self, history: History, last: int, gone: Callable[[], bool]) -> Iterator[bytes]:
        """The records past `last`, for as long as the reader is not gone. Raises `TooManyError`."""
        if not self._free.acquire(blocking=False):
            raise TooManyError(f"{MAX_STREAMS} follow already; ask without text/event-stream")
        return _Stream(self._follow(history, last, gone), self._free.release)

    def _follow(self, history: History, last: int, gone: Callable[[], bool]) -> Iterator[bytes]:
        yield b"retry: 2000\n\n"
        silent = 0
        for _ in range(LIFE_SECONDS):
            while records := history.after(last, MOST):
                last, silent = records[-1].sequence, 0
                yield b"".join(map(_told, records))
            if gone() or history.is_closed:
                return
            if not history.wait(last, _LOOK_SECONDS):
                silent += 1
            if silent >= STILL_HERE_SECONDS:
                silent = 0
                yield b": still here\n\n"


class _Stream(Iterator[bytes]):
    """Gives its place back when the server lets go of it, also where it was never begun."""

    def __init__(self, parts: Iterator[bytes], release: Callable[[], None]) -> None:
        self._parts = parts
        self._release: Callable[[], None] | None = release

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        """As WSGI has it: called once the answer is over, whatever became of it."""
        release, self._release = self._release, None
        if release is not None:
            release()


def resumed(history: History, last_event_id: str | None, after: int | None) -> int:
    """The sequence that a reader has already: as it says, or else the newest.

    A reader of a store that is no more gets everything of this one.
    """
    if last_event_id is None:
        return history.last_sequence if after is None else after
    stream, _, sequence = last_event_id.rpartition("/")
    if stream != history.stream:
        return 0
    plain = sequence.isascii() and sequence.isdecimal() and len(sequence) <= 20  # noqa: PLR2004
    return min(int(sequence), history.last_sequence) if plain else 0


def _told(record: EventRecord) -> bytes:
    # A record is one line: canonical JSON has no line breaks.
    head = f"id: {record.stream}/{record.sequence}\nevent: record\ndata: ".encode()
    return head + record.body + b"\n\n"
