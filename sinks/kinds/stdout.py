"""Standard output as a destination: JSON lines, or readable lines on a terminal."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal, Protocol, TextIO

from pydantic import Field

from sinks.base import Check, Sink, SinkContext, SinkError, SinkSettings
from sinks.readable_line import readable_line
from sinks.shared.text import escaped
from wire.record import Record

# One for the process: an abandoned thread may still sit in a write that its reader does not take.
# Other writers must wait, or the lines would mix.
_WRITING: Final = threading.Lock()
_PATIENCE: Final = 15.0


class StdoutSettings(SinkSettings):
    """How records look on standard output."""

    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="json, text, or auto: text on a terminal, JSON lines otherwise"
    )


class _Raw(Protocol):
    def write(self, data: bytes, /) -> int | None:
        """Write some of the data and return how much; None if a non-blocking pipe is full."""


class StdoutSink(Sink[StdoutSettings]):
    """Standard output: a JSON line per record, or a readable line on a terminal.

    Each record is flushed. Nothing says whether the reader at the other end has processed it.
    """

    KIND: ClassVar[str] = "stdout"
    Settings: ClassVar[type[SinkSettings]] = StdoutSettings

    def __init__(self, name: str, settings: StdoutSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self.stream: Callable[[], TextIO | None] = _standard_output
        self._torn = False

    def open(self) -> None:
        """Check that standard output is not closed. Raises `SinkError` if it is."""
        self._opened()

    def deliver(self, records: Sequence[Record]) -> None:
        """Write the record and flush. Raises `SinkError` if the reader is gone."""
        if not _WRITING.acquire(timeout=_PATIENCE):
            raise SinkError("the program that reads standard output has stopped reading")
        try:
            stream = self._opened()
            for record in records:
                self._write(stream, self._line(stream, record) + b"\n")
        finally:
            _WRITING.release()

    def _opened(self) -> TextIO:
        stream = self.stream()
        if stream is None or stream.closed or not hasattr(stream, "buffer"):
            raise SinkError("this process has no standard output")
        return stream

    def _line(self, stream: TextIO, record: Record) -> bytes:
        terminal = stream.isatty()
        if self.settings.format == "text" or (terminal and self.settings.format == "auto"):
            width = shutil.get_terminal_size().columns if terminal else None
            line = readable_line(
                record,
                now=self.context.now(),
                width=width,
                colour=terminal and _terminal_takes_colour(),
            )
            return line.encode(stream.encoding or "utf-8", errors="backslashreplace")
        if terminal:
            # JSON escapes C0 only; a terminal also obeys C1. The value stays the same.
            return escaped(record.body.decode()).encode()
        return record.body

    def _write(self, stream: TextIO, line: bytes) -> None:
        """Write past Python's buffer: after an error, the buffer would keep half a line."""
        if self._torn:
            line = b"\n" + line
        try:
            stream.flush()
            raw: _Raw = getattr(stream.buffer, "raw", stream.buffer)
            rest = memoryview(line)
            while rest:
                count = raw.write(bytes(rest))
                if count is None:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                self._torn = True
                rest = rest[count:]
        except (OSError, ValueError) as error:
            raise SinkError(_reason_of(error)) from None
        self._torn = False

    def check(self) -> Sequence[Check]:
        """Return a line that says what standard output is; nothing is written."""
        try:
            stream = self._opened()
        except SinkError as error:
            remedy = "run seb from a shell or a service manager, or take this sink out"
            return (Check.fail(str(error), remedy),)
        kind = "a terminal" if stream.isatty() else "not a terminal"
        return (Check.ok(f"standard output is open, and is {kind}"),)


def _standard_output() -> TextIO | None:
    # Looked up each time. `__stdout__` is None under pythonw, and if a shell has closed it.
    return None if sys.__stdout__ is None else sys.stdout


def _terminal_takes_colour() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    # An old Windows console shows escape sequences as text; the newer terminal sets this.
    return sys.platform != "win32" or "WT_SESSION" in os.environ


def _reason_of(error: OSError | ValueError) -> str:
    if isinstance(error, BlockingIOError):
        return "the pipe behind standard output is full: the program that reads it is too slow"
    # Windows gives EINVAL, others give EPIPE; a closed file object is a ValueError.
    if isinstance(error, (BrokenPipeError, ValueError)) or error.errno == errno.EINVAL:
        return "standard output is closed: the program that read it has gone"
    return f"standard output cannot be written: {error.strerror or type(error).__name__}"
