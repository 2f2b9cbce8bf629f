"""A file of JSON lines as a destination. It never leaves half a line, and never creates a
directory: the directory may be a mount that is missing.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field, field_validator

from sinks.base import Check, Sink, SinkContext, SinkError, SinkSettings
from wire.record import Record

# Readable by the owner's group (log shippers), writable by the owner alone; umask narrows it.
_MODE: Final = 0o640
# O_BINARY: Windows would write \r\n. O_NONBLOCK: opening a FIFO must not wait for its reader.
_FLAGS: Final = (
    os.O_RDWR
    | os.O_APPEND
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_LITTLE_SPACE: Final = 100 * 1024 * 1024
_REMEDIES: Final = {
    errno.ENOENT: "create its directory",
    errno.ENOTDIR: "correct the path",
    errno.EISDIR: "name a file in it",
    errno.EACCES: "let the account that runs seb write there",
    errno.EPERM: "let the account that runs seb write there",
    errno.EROFS: "choose another path",
    errno.ENOSPC: "free some space, or rotate the file",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EFBIG: "rotate the file, or raise the limit on its size",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "correct the symbolic link",
    errno.ENXIO: "name a regular file, or use the stdout sink",
    errno.EIO: "look at the system's log for trouble with the disk",
}


class FileSettings(SinkSettings):
    """The file to append to."""

    path: Path = Field(description="File that gets a JSON line per record; rotate it as you like")

    @field_validator("path", mode="before")
    @classmethod
    def _given(cls, path: object) -> object:
        if path == "":
            raise ValueError("this is empty, which would be the current directory; name a file")
        return path


class FileSink(Sink[FileSettings]):
    """A file that gets a JSON line per record, on disk before the record counts as delivered.

    Each batch is one write and one fsync. The file is opened by its path for each batch. So it
    follows any rotation: a rename, a deletion, a truncation in place; and on Windows, where an
    open file cannot be renamed, a rotation is never in the sink's way.
    """

    KIND: ClassVar[str] = "file"
    Settings: ClassVar[type[SinkSettings]] = FileSettings
    BATCH: ClassVar[int] = 100

    def __init__(self, name: str, settings: FileSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._aborted = threading.Event()

    def open(self) -> None:
        """Create the file if it is missing. Raises `SinkError` if that cannot be done."""
        self.deliver(())

    def deliver(self, records: Sequence[Record]) -> None:
        """Append a line per record and sync. Raises `SinkError`; in that case no line was left in
        the file.
        """
        path = self.settings.path
        try:
            lines = b"".join(record.body + b"\n" for record in records)
            _append(path, lines, is_aborted=self._aborted.is_set)
        except OSError as error:
            raise SinkError(f"{path}: {_reason(error)}", remedy=_remedy(error)) from None

    def abort(self) -> None:
        """Have a delivery that is stuck write nothing once the disk answers: by then another one
        may have written newer records.
        """
        self._aborted.set()

    def check(self) -> Sequence[Check]:
        """Check whether the file can be written, and how much space is left; nothing is written."""
        path = self.settings.path
        try:
            _try(path)
            free = shutil.disk_usage(path.parent).free
        except OSError as error:
            text = f"{path}: {_reason(error)}"
            return (Check.fail(text, _remedy(error)),)
        megabytes = free // (1024 * 1024)
        if free < _LITTLE_SPACE:
            text = f"{path} can be written, but only {megabytes} MiB are free"
            return (Check.warn(text, _REMEDIES[errno.ENOSPC]),)
        return (Check.ok(f"{path} can be written; {megabytes} MiB free"),)


def _append(path: Path, lines: bytes, *, is_aborted: Callable[[], bool]) -> None:
    """Write and sync all lines, or leave the file as it was and raise `OSError`."""
    _refuse_special(path)
    new = not path.exists()
    descriptor = os.open(path, _FLAGS | os.O_CREAT, _MODE)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if lines:
            data = _line_end(descriptor, size) + lines
            if is_aborted():
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            _write(descriptor, data, size=size)
    finally:
        os.close(descriptor)
    if new:
        _sync_directory(path.parent)


def _write(descriptor: int, data: bytes, *, size: int) -> None:
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError:
        # Another writer may have appended meanwhile: its lines must not be cut off. Then the torn
        # line stays, and the next batch ends it.
        if os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
        raise


def _try(path: Path) -> None:
    """Raise the `OSError` that appending would raise, as far as that can be known without
    writing.
    """
    _refuse_special(path)
    if path.exists():
        os.close(os.open(path, _FLAGS))
        return
    code = 0 if path.parent.is_dir() else errno.ENOENT
    if not code and not os.access(path.parent, os.W_OK | os.X_OK):
        code = errno.EACCES
    if code:
        raise OSError(code, os.strerror(code))


def _line_end(descriptor: int, size: int) -> bytes:
    """Return the end for a line that a power failure cut off; its record is delivered again,
    because it was not synced.
    """
    if size == 0:
        return b""
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return b"" if os.read(descriptor, 1) == b"\n" else b"\n"


def _refuse_special(path: Path) -> None:
    """Raise `OSError` for anything but a regular file: a pipe or a device cannot be synced."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):  # Windows would say 'permission denied' on opening it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, "a pipe, a socket or a device cannot keep a record")


def _sync_directory(directory: Path) -> None:
    """Sync the directory, so that the name of a new file is as durable as its content."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows has no such call, and does not need it
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _remedy(error: OSError) -> str:
    return _REMEDIES.get(error.errno or 0, "see that the path can be written")
