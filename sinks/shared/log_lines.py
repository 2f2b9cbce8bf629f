"""Log lines for a stream such as standard error, written by a thread of their own. The thread that
logs never waits: if the reader stops, lines are dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

from sinks.shared.threads import try_to_start

ROOM: Final = 1 << 20
"""How many characters may wait for a slow reader; further lines are dropped."""
FLUSH_SECONDS: Final = 1.0
"""How long the end of a program waits for its last lines."""


class LineHandler(logging.Handler):
    """Writes each record as a line. Lines that are dropped are reported by a line of their own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.lines = LineWriter(stream, self._lost)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record's line; one that cannot be formatted is left out."""
        with suppress(Exception):
            self.lines.put(self.format(record) + "\n")

    def flush(self) -> None:
        """Wait until the lines are written, at most `FLUSH_SECONDS`."""
        self.lines.flush(FLUSH_SECONDS)

    def _lost(self, count: int) -> str:
        fields = {
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": "lines of this log were lost: they could not be written",
            "action": "log_lost",
            "lines": count,
        }
        return self.format(logging.makeLogRecord(fields)) + "\n"


class LineWriter:
    """A bounded queue of lines and the thread that writes them. `put` never waits."""

    def __init__(self, stream: TextIO, lost: Callable[[int], str]) -> None:
        """Begin with an empty queue; `lost` returns the line that reports how many were dropped."""
        self.dropped = 0
        """How many lines were dropped since the start."""
        self._stream = stream
        self._lost = lost
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, int]] = deque()
        """Lines, each with the number of dropped lines that it reports: 0 for a line of the log."""
        self._size = 0
        self._unreported = 0
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Queue the line, or drop it if too much is waiting."""
        with self._changed:
            full = self._size + len(line) > ROOM
            if self._waiting and (full or self._unreported):
                self._drop()
                return
            if self._unreported:
                self._report()
            self._append(line, 0)

    def flush(self, seconds: float) -> bool:
        """Wait at most so many seconds until everything is written; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout=seconds)

    def _drop(self) -> None:
        self.dropped += 1
        self._unreported += 1

    def _report(self) -> None:
        count = self._unreported
        self._unreported = 0
        self._append(self._lost(count), count)

    def _append(self, line: str, lost: int) -> None:
        self._waiting.append((line, lost))
        self._size += len(line)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="log", daemon=True)
            self._thread = thread if try_to_start(thread) else None  # the next line tries again
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                line, lost = self._waiting[0]
            try:
                write_past_buffer(self._stream, line)
                written = True
            except (OSError, ValueError):  # a full disk, a reader that is gone, a closed stream
                written = False
            with self._changed:
                self._waiting.popleft()
                self._size -= len(line)
                if not written and lost:
                    self._unreported += lost
                elif not written:
                    self._drop()
                elif self._unreported and not self._waiting:
                    self._report()
                self._changed.notify_all()


def write_line(stream: TextIO, line: str) -> None:
    """Write a line for a person, and wait for it `FLUSH_SECONDS` at most."""
    writer = LineWriter(stream, lambda _: "")
    writer.put(line + "\n")
    writer.flush(FLUSH_SECONDS)


def write_past_buffer(stream: TextIO, text: str) -> None:
    """Write to a stream without Python's buffer: its lock would hold up the end of the process as
    long as a reader stands still. Raises `OSError`, or `ValueError` if the stream is closed.
    """
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(text)
        return
    raw = getattr(buffer, "raw", buffer)
    rest = text.encode(stream.encoding or "utf-8", errors="backslashreplace")
    while rest:
        count = raw.write(rest)
        if count is None:
            raise BlockingIOError("the stream does not take more now, and cannot wait")
        rest = rest[count:]
