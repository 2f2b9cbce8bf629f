"""One run of a program and all that it starts; never through a shell, never without a limit."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from sinks.program.output import Output

WINDOWS: Final = sys.platform == "win32"
GRACE_SECONDS: Final = 2.0
"""From the request to end to the end by force."""
REAP_SECONDS: Final = 1.0
"""After that; longer only if the system itself does not let go of the process."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long to wait, after the end, for what the program has written."""


class Run:
    """A running program in a group of its own (Windows: a job); `kill` is for any thread."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        body: bytes,
        out: Output,
        err: Output,
    ) -> None:
        """Start it with `body` on its standard input. Raises `OSError` or `ValueError`."""
        self._out = out
        self._err = err
        out.begin()
        err.begin()
        self._process = subprocess.Popen(  # noqa: S603  # the owner's own words, and no shell
            _found(command),
            env=env,
            stdin=subprocess.PIPE,
            stdout=out.fileno(),
            stderr=err.fileno(),
            bufsize=0,
            **_Group.HOW,
        )
        self._group = _Group(self._process.pid)
        # In a thread, for a program need not read, and a pipe holds less than a record may have.
        threading.Thread(
            target=_write, args=(self._process.stdin, body), name="program-pipe", daemon=True
        ).start()

    def wait(self, seconds: float) -> int | None:
        """The exit code, negative for a signal; None if it has not ended in so many seconds."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        if code == 0:
            self._group.let_go()
        return code

    def end(self) -> bool:
        """Ask it to end, and make it; whether it has, after about three seconds at most."""
        self._group.ask_to_end()
        self.wait(GRACE_SECONDS)
        self.kill()
        return self.wait(REAP_SECONDS) is not None

    def kill(self) -> None:
        """End it and all that it started, at once. It may have ended before."""
        self._group.end()
        with suppress(OSError):
            self._process.kill()  # the program itself, if Windows refused the job

    def last_words(self) -> str:
        """The end of its error output, or else of its output."""
        return self._err.text(LAST_WORDS_SECONDS) or self._out.text(LAST_WORDS_SECONDS)


def signal_name(number: int) -> str:
    """The name of a signal, for people."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def writable_by_anybody(path: Path) -> bool:
    """Whether any account may change a file, by its mode (not on Windows), or `OSError`."""
    return not WINDOWS and bool(path.stat().st_mode & stat.S_IWOTH)


if sys.platform == "win32":

    def _found(command: Sequence[str]) -> Sequence[str]:
        """With the path that a name stands for: the system itself finds .exe files only."""
        return [shutil.which(command[0]) or command[0], *command[1:]]

    class _Group:
        # No window: a service has none to show it in, and a person did not ask for one.
        # Suspended (4): nothing may be started before the job is there.
        HOW: ClassVar[dict[str, Any]] = {
            "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW | 4
        }

        def __init__(self, pid: int) -> None:
            from sinks.program.job import Job  # noqa: PLC0415  # exists on Windows only

            job = Job(pid)
            self.end = job.end
            self.let_go = job.let_go

        def ask_to_end(self) -> None:
            """Nothing: a process without a console and without a window would not hear it."""

else:

    def _found(command: Sequence[str]) -> Sequence[str]:
        return command

    class _Group:
        HOW: ClassVar[dict[str, Any]] = {"start_new_session": True}

        def __init__(self, pid: int) -> None:
            self._pid = pid

        def ask_to_end(self) -> None:
            self._signal(signal.SIGTERM)

        def end(self) -> None:
            self._signal(signal.SIGKILL)

        def let_go(self) -> None:
            """Nothing: a group does not end with the bridge."""

        def _signal(self, number: int) -> None:
            # After the program's end its number could be another group's by now; but systems give
            # numbers out in turn, and no turn is over between two lines of ours.
            # No process is left; or, behind `sudo` and its like, one that we may not end.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def _write(stream: IO[bytes] | None, body: bytes) -> None:
    assert stream is not None  # noqa: S101 - it was asked for
    # A program that does not read its input may well know what it does: its exit code decides.
    with suppress(OSError), stream:
        rest = memoryview(body)
        while rest:
            rest = rest[stream.write(rest) :]
