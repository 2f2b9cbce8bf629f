"""The sink that writes to standard output."""

import errno
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

import pytest

from sinks.base import SinkError
from sinks.kinds.stdout import _WRITING, StdoutSettings, StdoutSink
from sinks.testing import SinkContract, sample_context, sample_record


def a_pipe() -> tuple[int, TextIO]:
    """Return the descriptor of the reading end of a pipe, and the writing end as a text stream."""
    reading, writing = os.pipe()
    return reading, os.fdopen(writing, "w", encoding="utf-8")


class Pipe:
    """Standard output as a pipe, with a thread that reads it."""

    settings: Mapping[str, Any] = {}
    secrets: Sequence[str] = ()

    def __init__(self) -> None:
        self._got = bytearray()
        self.stream: TextIO | None = None
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        self.finish()
        self._reading, self.stream = a_pipe()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._reading, 65536):
            self._got += chunk
        os.close(self._reading)

    def stop(self) -> None:
        self.finish()
        reading, self.stream = a_pipe()
        os.close(reading)

    def finish(self) -> None:
        """Close the writing end, so that the reader gets the end of the data."""
        if self.stream:
            self.stream.close()
        if self._thread:
            self._thread.join()

    def received(self) -> Sequence[bytes]:
        self.start()
        assert self._got.endswith(b"\n") or not self._got
        return bytes(self._got).splitlines()


def a_sink(stream: TextIO | None = None, **settings: Any) -> StdoutSink:
    """Return a sink that writes to this stream."""
    made = StdoutSink("out", StdoutSettings(kind="stdout", **settings), sample_context())
    if stream:
        made.stream = lambda: stream
    return made


class TestStdoutContract(SinkContract):
    sink_class = StdoutSink

    @pytest.fixture
    def destination(self) -> Iterator[Pipe]:
        pipe = Pipe()
        yield pipe
        pipe.finish()

    def make(self, destination: Any) -> StdoutSink:
        made = a_sink()
        made.stream = lambda: destination.stream
        return made

    def test_check_tells_what_to_do(self, sink: Any, destination: Any) -> None:
        """`check` fails without a standard output; it cannot recognize a closed pipe without
        writing.
        """
        sink.stream = lambda: None
        (line,) = sink.check()
        assert line.level == "fail"
        assert line.remedy


class Stream(io.TextIOWrapper):
    """A stream that keeps what is written to it, and is a terminal if asked to be."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def written(patch: pytest.MonkeyPatch, stream: Stream, **settings: Any) -> bytes:
    """Return what the stream gets for a record with control characters in it."""
    patch.setenv("COLUMNS", "200")
    patch.setattr(sys, "platform", "linux")
    record = sample_record(description="a\x9b31m\x1b[2Jz \u2013")
    a_sink(stream, **settings).deliver([record])
    return stream.kept.getvalue()


def test_a_terminal_gets_a_readable_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, `auto` means text with colour, and control characters are escaped."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = written(monkeypatch, Stream(terminal=True)).decode()
    assert shown.startswith("12:00:01Z \x1b[33mscheduled\x1b[0m  Freeze Scheduled")
    assert shown.endswith("a\\u009b31m\\u001b[2Jz \u2013\n")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_is_left_out_where_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """With NO_COLOR, or on a dumb terminal, there is no colour."""
    monkeypatch.setenv(name, value)
    assert b"\x1b" not in written(monkeypatch, Stream(terminal=True))


def test_text_can_be_asked_for_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `format: text` a file gets readable lines without colour."""
    shown = written(monkeypatch, Stream(terminal=False), format="text")
    assert shown.startswith(b"12:00:01Z scheduled  Freeze Scheduled  this VM")
    assert b"(in 15m 00s)" in shown  # by the context's clock


def test_json_on_a_terminal_keeps_its_meaning_and_is_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JSON on a terminal has no control character, and is the same value."""
    shown = written(monkeypatch, Stream(terminal=True), format="json").decode()
    assert shown.rstrip("\n").isprintable()
    assert json.loads(shown)["data"]["event"]["description"] == "a\x9b31m\x1b[2Jz \u2013"


def test_a_terminal_without_unicode_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character that the terminal's encoding lacks is escaped."""
    shown = written(monkeypatch, Stream(terminal=True, encoding="ascii"))
    assert shown.endswith(b"\\u2013\n")


class FullDisk(io.RawIOBase):
    """A stream that accepts a few bytes, and then reports once that the disk is full."""

    def __init__(self) -> None:
        self.kept = b""
        self.failing: list[int | None] = [5]

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int | None:
        if self.failing:
            if (count := self.failing.pop()) is None:
                return None
            self.failing = [] if count == 0 else [0]
            if count == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.kept += data[:count]
            return count
        self.kept += data
        return len(data)


def test_a_torn_line_is_ended_before_the_next() -> None:
    """After half a line, the record is written again on a new line."""
    disk, record = FullDisk(), sample_record()
    sink = a_sink(io.TextIOWrapper(io.BufferedWriter(disk)))
    with pytest.raises(SinkError, match="standard output cannot be written: No space left"):
        sink.deliver([record])
    sink.deliver([record])
    assert disk.kept == record.body[:5] + b"\n" + record.body + b"\n"


def test_a_pipe_that_is_full_and_cannot_wait() -> None:
    """A delivery to a full non-blocking pipe is tried again later."""
    disk = FullDisk()
    disk.failing = [None]
    sink = a_sink(io.TextIOWrapper(io.BufferedWriter(disk)))
    with pytest.raises(SinkError, match="too slow"):
        sink.deliver([sample_record()])


def test_a_stuck_writer_keeps_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """While an abandoned thread hangs in a write, the next sink waits, and then raises an error
    that says why.
    """
    monkeypatch.setattr("sinks.kinds.stdout._PATIENCE", 0.01)
    with _WRITING, pytest.raises(SinkError, match="stopped reading"):
        a_sink(Stream(terminal=False)).deliver([sample_record()])


PROGRAM = """
import sys
from sinks.base import SinkError
from sinks.kinds.stdout import StdoutSettings, StdoutSink
from sinks.testing import sample_context, sample_record
sink = StdoutSink("out", StdoutSettings(kind="stdout"), sample_context())
sink.deliver([sample_record()])
sys.stdin.readline()
try:
    sink.deliver([sample_record(2)])
except SinkError as error:
    print(error, file=sys.stderr)
"""


def test_a_reader_that_goes_away() -> None:
    """The error of a real process whose reader has ended says so, and nothing else is printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    with process:
        assert process.stdout.readline() == sample_record().body + b"\n"
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        shown = process.stderr.read().decode().strip()
    assert (process.returncode, shown) == (
        0,
        "standard output is closed: the program that read it has gone",
    )
