"""One run of a program and everything it starts; never through a shell, never without a limit."""

from __future__ import annotations

import errno
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

from sinks.kinds.program.output import Output
from sinks.shared.threads import try_to_start

WINDOWS: Final = sys.platform == "win32"
GRACE_SECONDS: Final = 2.0
"""The time from the request to end to the end by force."""
REAP_SECONDS: Final = 1.0
"""The time after that; it takes longer only if the system itself does not end the process."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long to wait, after the end, for the rest of the program's output."""


class Run:
    """A running program in a process group of its own (Windows: a job); `kill` may be called from
    any thread.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        body: bytes,
        out: Output,
        err: Output,
    ) -> None:
        """Start the program with `body` on its standard input. Raises `OSError` or `ValueError`."""
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
        # On a thread: a program need not read, and a pipe holds less than a record may have.
        writer = threading.Thread(
            target=_write, args=(self._process.stdin, body), name="program-pipe", daemon=True
        )
        if not try_to_start(writer):
            self.kill()  # it would run without its input, beside the next try
            self.wait(REAP_SECONDS)
            _write(self._process.stdin, b"")  # closes it
            raise OSError(errno.EAGAIN, "no thread can be started")

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, negative for a signal; None if it has not ended after so many
        seconds.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        if code == 0:
            self._group.release()
        return code

    def end(self) -> bool:
        """Ask the program to end, then end it by force; return whether it has ended, after about
        three seconds at most.
        """
        self._group.ask_to_end()
        self.wait(GRACE_SECONDS)
        self.kill()
        return self.wait(REAP_SECONDS) is not None

    def kill(self) -> None:
        """End the program and everything it started at once. Has no effect after their end."""
        self._group.end()
        with suppress(OSError):
            self._process.kill()  # the program itself, if Windows refused the job

    def last_words(self) -> str:
        """Return the end of the program's error output, or of its standard output if that is
        empty.
        """
        return self._err.text(LAST_WORDS_SECONDS) or self._out.text(LAST_WORDS_SECONDS)


def signal_name(number: int) -> str:
    """Return the name of a signal, for people."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def writable_by_anybody(path: Path) -> bool:
    """Check by a file's mode whether any account may change it. On Windows, where the mode does not
    say so, return False. Raises `OSError`.
    """
    return not WINDOWS and bool(path.stat().st_mode & stat.S_IWOTH)


if sys.platform == "win32":

    def _found(command: Sequence[str]) -> Sequence[str]:
        """Return the command with the full path of its program. By a name without a path Windows
        finds only .exe files.
        """
        return [shutil.which(command[0]) or command[0], *command[1:]]

    class _Group:
        # No window: a service has none to show it in, and a person did not ask for one.
        # Suspended (4): nothing may be started before the job is there.
        HOW: ClassVar[dict[str, Any]] = {
            "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW | 4
        }

        def __init__(self, pid: int) -> None:
            from sinks.kinds.program.job import Job  # noqa: PLC0415  # exists on Windows only

            job = Job(pid)
            self.end = job.end
            self.release = job.release

        def ask_to_end(self) -> None:
            """Do nothing: a process without a console and a window would not receive a request."""

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

        def release(self) -> None:
            """Do nothing: the processes of a group run on when the bridge ends."""

        def _signal(self, number: int) -> None:
            # After the program's end its number could belong to another group; but systems give
            # numbers out in turn, and cannot come back to this one between two lines of code.
            # The errors: no process is left, or one that the bridge may not end, as with `sudo`.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def _write(stream: IO[bytes] | None, body: bytes) -> None:
    assert stream is not None  # noqa: S101  # it was asked for
    # A program that does not read its input may well know what it does: its exit code decides.
    with suppress(OSError), stream:
        rest = memoryview(body)
        while rest:
            rest = rest[stream.write(rest) :]
