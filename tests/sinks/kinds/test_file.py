"""The sink that writes a file."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.sinks.destination import FarEnd

from sinks.base import SinkError
from sinks.kinds.file import FileSettings, FileSink
from sinks.testing import SinkContract, sample_context, sample_record

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


class TestFileContract(SinkContract):
    sink_class = FileSink

    @pytest.fixture
    def destination(self, tmp_path: Path) -> FarEnd:
        """A directory that can be moved away and back, like a mount."""
        here, away = tmp_path / "here", tmp_path / "away"
        here.mkdir()
        file = here / "records.jsonl"
        return FarEnd(
            settings={"path": str(file)},
            received=lambda: file.read_bytes().splitlines() if file.exists() else [],
            stop=lambda: here.rename(away),
            start=lambda: away.rename(here),
        )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path that the sink under test writes to."""
    return tmp_path / "records.jsonl"


def a_sink(path: Path) -> FileSink:
    """Return a sink that writes to this path."""
    return FileSink("file", FileSettings(kind="file", path=path), sample_context())


def line(sequence: int) -> bytes:
    """Return the line for a sample record."""
    return sample_record(sequence).body + b"\n"


@pytest.mark.parametrize("given", [{}, {"path": ""}])
def test_a_path_is_required(given: dict[str, str]) -> None:
    """A file sink without a path, or with an empty one, is a mistake in the settings."""
    with pytest.raises(ValidationError, match="path"):
        FileSettings.model_validate({"kind": "file", **given})


@POSIX
def test_strangers_cannot_read_it(path: Path) -> None:
    """Only the owner and the owner's group can read a new file."""
    a_sink(path).open()
    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0


@pytest.mark.parametrize("torn", [b"", line(2)[:40]])
def test_earlier_content_stays(path: Path, torn: bytes) -> None:
    """The earlier content of the file stays; a line that a power cut tore is ended before the next
    record.
    """
    path.write_bytes(line(1) + torn)
    a_sink(path).deliver([sample_record(2)])
    assert path.read_bytes() == line(1) + torn + (b"\n" if torn else b"") + line(2)


@pytest.mark.parametrize(
    "rotate",
    [
        lambda path: path.rename(path.with_suffix(".1")),
        Path.unlink,
        lambda path: os.truncate(path, 0),
    ],
    ids=["renamed", "deleted", "truncated"],
)
def test_it_follows_a_rotation(path: Path, rotate: Callable[[Path], object]) -> None:
    """After a rotation the next record goes to the new file, or to the start of the emptied one."""
    sink = a_sink(path)
    sink.deliver([sample_record(1)])
    old = rotate(path)
    sink.deliver([sample_record(2)])
    assert path.read_bytes() == line(2)
    assert not isinstance(old, Path) or old.read_bytes() == line(1)


def test_it_is_synced_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced with all its lines in it, before `deliver` returns."""
    sizes: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            sizes.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    a_sink(path).deliver([sample_record(1), sample_record(2)])
    assert sizes == [len(line(1) + line(2))]


def test_a_disk_that_cannot_sync_leaves_no_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If fsync fails, the sink removes the lines of the batch, and they are delivered again."""
    path.write_bytes(line(1))

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(SinkError, match="look at the system's log for trouble"):
        a_sink(path).deliver([sample_record(2)])
    assert path.read_bytes() == line(1)


PROGRAM = """
import resource, sys
from pathlib import Path
from sinks.base import SinkError
from sinks.kinds.file import FileSettings, FileSink
from sinks.testing import sample_context, sample_record
limit = len(sample_record(1).body) + 100
sink = FileSink("file", FileSettings(kind="file", path=Path(sys.argv[1])), sample_context())
sink.deliver([sample_record(1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    sink.deliver([sample_record(2)])
except SinkError as error:
    print(error.delivered, error)
"""


@POSIX
def test_half_a_write_is_taken_back(path: Path) -> None:
    """If the system writes only a part of a batch, the sink removes that part."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout
        == f"0 {path}: file too large; {'rotate the file, or raise the limit'} on its size\n"
    )
    assert path.read_bytes() == line(1)


def test_lines_of_another_writer_are_not_cut_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the sink removes a part of its own write, it keeps lines that another program appended
    after it.
    """

    def fsync(descriptor: int) -> None:
        with path.open("ab") as other:
            other.write(b"theirs\n")
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(SinkError):
        a_sink(path).deliver([sample_record(1)])
    assert path.read_bytes() == line(1) + b"theirs\n"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "choose another path"),
        (errno.EACCES, "let the account that runs seb write there"),
        (errno.ESTALE, "see that the path can be written"),
    ],
)
def test_each_trouble_has_its_remedy(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    """The error names the path, the reason and what to do."""

    def refuse(*arguments: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SinkError) as caught:
        a_sink(path).deliver([sample_record(1)])
    assert str(caught.value).startswith(f"{path}: {os.strerror(code).lower()}; {remedy}")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A path that is a directory is an error that says so, also in `check`."""
    sink = a_sink(tmp_path)
    with pytest.raises(SinkError, match="name a file in it"):
        sink.open()
    assert [(line.level, line.remedy) for line in sink.check()] == [("fail", "name a file in it")]


def test_the_directory_is_not_made(tmp_path: Path) -> None:
    """A missing directory is an error and is not created: it may be a mount."""
    with pytest.raises(SinkError, match="no such file or directory; create its directory"):
        a_sink(tmp_path / "missing" / "x.jsonl").open()
    assert not (tmp_path / "missing").exists()


@POSIX
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_fifo_or_a_device_is_refused(tmp_path: Path, kind: str) -> None:
    """A FIFO or a device is refused at once, without waiting for its reader."""
    path = Path("/dev/null")
    if kind == "fifo":
        path = tmp_path / "fifo"
        os.mkfifo(path)
    sink = a_sink(path)
    with pytest.raises(SinkError, match="use the stdout sink"):
        sink.open()
    assert [line.level for line in sink.check()] == ["fail"]


def test_an_abandoned_delivery_writes_nothing_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that was abandoned while the disk hung writes nothing when the disk answers again:
    another sink may have written newer records.
    """
    sink = a_sink(path)
    sink.open()
    original = os.open

    def hanging(*given: Any) -> int:
        monkeypatch.setattr(os, "open", original)
        sink.abort()
        a_sink(path).deliver([sample_record(1), sample_record(2)])
        return original(*given)

    monkeypatch.setattr(os, "open", hanging)
    with pytest.raises(SinkError):
        sink.deliver([sample_record(1)])
    assert path.read_bytes() == line(1) + line(2)


def test_check_writes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` does not create a missing file; it warns of less than 100 MiB on the disk."""
    (told,) = a_sink(path).check()
    assert (told.level, path.exists()) == ("ok", False)
    monkeypatch.setattr("sinks.kinds.file._LITTLE_SPACE", 2**62)
    (told,) = a_sink(path).check()
    assert (told.level, told.remedy) == ("warn", "free some space, or rotate the file")
