"""The end of a program's output, for error messages. It never keeps more than its limit."""

from __future__ import annotations

import errno
import os
import secrets
import threading
import weakref
from contextlib import suppress
from typing import Final

from sinks.shared.text import escaped
from sinks.shared.threads import try_to_start

KEPT_BYTES: Final = 2048
SHOWN_CHARACTERS: Final = 300
"""The end of a program's output must fit into a reason, which is cut at 500 characters."""
_CHUNK: Final = 65_536


class Output:
    """One pipe for all runs, and a thread that reads it.

    With a pipe for each run, pipes would add up: a background process keeps its own open, or is
    ended by SIGPIPE.
    """

    def __init__(self) -> None:
        """Make the pipe. Raises `OSError` if there can be no pipe or no thread now."""
        readable, self._write = os.pipe()
        self._tail = _Tail()
        reader = threading.Thread(
            target=_read, args=(readable, self._tail), name="program-pipe", daemon=True
        )
        if not try_to_start(reader):
            os.close(readable)
            os.close(self._write)
            raise OSError(errno.EAGAIN, "no thread can be started")
        weakref.finalize(self, _stop, self._write, self._tail)

    def fileno(self) -> int:
        """Return the descriptor for programs to write to."""
        return self._write

    def begin(self) -> None:
        """Forget the output of the previous run, because a new one starts."""
        self._tail.clear()

    def text(self, seconds: float) -> str:
        """Return the end of the output on one escaped line. Waits at most so many seconds for
        output that is still in the pipe.
        """
        # The pipe need not end with the run; what was written before this mark has been read.
        mark = secrets.token_bytes(16)
        self._tail.expect(mark)
        with suppress(OSError):
            os.write(self._write, mark)
        kept = self._tail.before(mark, seconds)
        lines = (line.strip() for line in kept.decode(errors="replace").splitlines())
        text = escaped(" | ".join(line for line in lines if line))
        return text if len(text) <= SHOWN_CHARACTERS else f"…{text[1 - SHOWN_CHARACTERS :]}"


class _Tail:
    """The last bytes of a stream. One thread adds, another reads."""

    def __init__(self) -> None:
        self.stopped = False
        self._changed = threading.Condition()
        self._kept = b""
        self._mark = b""
        self._found: bytes | None = None

    def add(self, data: bytes) -> None:
        """Add more bytes."""
        with self._changed:
            kept = self._kept + data
            if self._mark and self._mark in kept:
                self._found, _, kept = kept.partition(self._mark)
                self._mark = b""
                self._changed.notify()
            self._kept = kept[-(KEPT_BYTES + len(self._mark)) :]

    def clear(self) -> None:
        """Forget everything."""
        with self._changed:
            self._kept = b""

    def expect(self, mark: bytes) -> None:
        """Search for a mark from now on."""
        with self._changed:
            self._mark = mark
            self._found = None

    def before(self, mark: bytes, seconds: float) -> bytes:
        """Return the output before the mark, or all of it if the mark does not arrive in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._found is not None, seconds)
            found = self._kept if self._found is None else self._found
            return found.replace(mark, b"")[-KEPT_BYTES:]


def _read(readable: int, tail: _Tail) -> None:
    with suppress(OSError), open(readable, "rb", buffering=0) as stream:  # a pipe
        while not tail.stopped and (data := stream.read(_CHUNK)):
            tail.add(data)


def _stop(writable: int, tail: _Tail) -> None:
    """Let the reading thread end, even if a background process holds the pipe open."""
    tail.stopped = True
    with suppress(OSError):
        os.write(writable, b"\0")
    with suppress(OSError):
        os.close(writable)
