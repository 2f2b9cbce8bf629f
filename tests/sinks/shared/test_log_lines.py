"""Log lines make no caller wait; lost lines are counted and reported."""

import errno
import io
import logging
import os
from collections.abc import Iterator
from typing import TextIO

import pytest
from support.threads import no_new_threads

from sinks.shared import log_lines
from sinks.shared.log_lines import LineHandler, LineWriter

LINE = "x" * 999 + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The reading end of a pipe, and its writing end as a stream."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
        os.close(reader)


def read_until(reader: int, end: str) -> list[str]:
    """Return the lines of a pipe, up to the one that ends with this text."""
    text = ""
    while not text.endswith(f"{end}\n"):
        text += os.read(reader, 65536).decode()
    return text.splitlines()


def test_a_reader_that_stands_still_costs_lines_only(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the reader stops, no call waits. When it continues, it gets the kept lines, and then
    how many were lost.
    """
    monkeypatch.setattr(log_lines, "ROOM", 100_000)
    reader, stream = pipe
    writer = LineWriter(stream, lambda count: f"lost {count}\n")
    for _ in range(1_000):
        writer.put(LINE)
    assert not writer.flush(0)
    lost = writer.dropped
    assert 700 < lost < 1_000
    *lines, report = read_until(reader, f"lost {lost}")
    assert (len(lines), report) == (1_000 - lost, f"lost {lost}")
    assert writer.flush(10)
    writer.put("more\n")
    assert read_until(reader, "more") == ["more"]


def test_a_log_that_cannot_start_its_thread_starts_it_later(pipe: tuple[int, TextIO]) -> None:
    """If no thread can be started for the first line, it is written with the next one."""
    reader, stream = pipe
    writer = LineWriter(stream, str)
    with no_new_threads():
        writer.put("first\n")
    writer.put("second\n")
    assert read_until(reader, "second") == ["first", "second"]


class Disk(io.StringIO):
    """A stream whose disk is full at first."""

    full = True

    def write(self, text: str, /) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(text)


def test_lines_that_a_full_disk_did_not_take_are_reported() -> None:
    """The report of lost lines comes before the first line that is written again."""
    disk = Disk()
    writer = LineWriter(disk, lambda count: f"lost {count}\n")
    for line in ("a\n", "b\n"):
        writer.put(line)
        assert writer.flush(10)
    disk.full = False
    writer.put("c\n")
    assert writer.flush(10)
    assert (disk.getvalue(), writer.dropped) == ("lost 2\nc\n", 2)


def test_the_report_has_the_form_of_the_log() -> None:
    """The report's action is `log_lost`, and its field `lines` is the number."""
    disk = Disk()
    handler = LineHandler(disk)
    handler.setFormatter(logging.Formatter("%(action)s %(lines)s"))
    handler.handle(logging.makeLogRecord({"action": "a", "lines": None}))
    handler.flush()
    disk.full = False
    handler.handle(logging.makeLogRecord({"action": "b", "lines": None}))
    handler.flush()
    assert disk.getvalue() == "log_lost 1\nb None\n"
