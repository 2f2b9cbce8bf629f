"""A file whose `open` waits, as one on a mount that does not answer."""

import fcntl
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 30.0


class HeldFile:
    """While it is held, who opens it waits, for as long as the kernel lets a lease last (45 s)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lease: int | None = None

    def hold(self) -> None:
        """From now on an `open` of the file waits."""
        self._lease = os.open(self.path, os.O_RDWR)
        fcntl.fcntl(self._lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def release(self, text: str) -> None:
        """The file has this text, and each `open` that waits goes on."""
        assert self._lease is not None
        os.pwrite(self._lease, text.encode(), 0)
        os.ftruncate(self._lease, len(text.encode()))
        os.close(self._lease)
        self._lease = None
        for each in threading.enumerate():
            if each.name == "call-with-timeout":
                each.join(_SECONDS)

    def close(self) -> None:
        """Hold it no longer."""
        if self._lease is not None:
            os.close(self._lease)


@contextmanager
def held(text: str) -> Iterator[HeldFile]:
    """A file with this text that is held; on a file system that has leases."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks for its lease back
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        path = Path(directory) / "held"
        path.write_text(text)
        file = HeldFile(path)
        try:
            file.hold()
            yield file
        finally:
            file.close()
            signal.signal(signal.SIGIO, before)
