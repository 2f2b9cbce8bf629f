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
from typing import IO, Any, Final

from sinks.program.output import Output

WINDOWS: Final = sys.platform == "win32"
GRACE_SECONDS: Final = 2.0
"""From the request to end to the end by force."""
REAP_SECONDS: Final = 1.0
"""After that; longer only if the system itself does not let go of the process."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long to wait, after the end, for what the program has written."""


class Run:
    """A running program in a group of its own (Windows: a tree); `kill` is for any thread."""

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
        self._out, self._err = out, err
        out.begin()
        err.begin()
        self._process = subprocess.Popen(  # noqa: S603  # the owner's own words, and no shell
            _found(command),
            env=env,
            stdin=subprocess.PIPE,
            stdout=out.fileno(),
            stderr=err.fileno(),
            bufsize=0,
            **_own_group(),
        )
        # In a thread, for a program need not read, and a pipe holds less than a record may have.
        threading.Thread(
            target=_write, args=(self._process.stdin, body), name="program-pipe", daemon=True
        ).start()

    def wait(self, seconds: float) -> int | None:
        """The exit code, negative for a signal; None if it has not ended in so many seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> bool:
        """Ask it to end, and make it; whether it has, after about three seconds at most."""
        _ask_to_end(self._process.pid)
        self.wait(GRACE_SECONDS)
        self.kill()
        return self.wait(REAP_SECONDS) is not None

    def kill(self) -> None:
        """End it and all that it started, at once. It may have ended before."""
        _kill(self._process.pid)
        with suppress(OSError):
            self._process.kill()  # the program itself, if taskkill is missing

    def last_words(self) -> str:
        """The end of its error output, or else of its output."""
        return self._err.text(LAST_WORDS_SECONDS) or self._out.text(LAST_WORDS_SECONDS)


def signal_name(number: int) -> str:
    """What a person calls a signal."""
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

    def _own_group() -> dict[str, Any]:
        # No window: a service has none to show it in, and a person did not ask for one.
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return {"creationflags": flags}

    def _ask_to_end(pid: int) -> None:
        """Nothing: a process without a console and without a window would not hear it."""

    def _kill(pid: int) -> None:
        taskkill = Path(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "taskkill.exe")
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603  # a program of the system's, and a number
                [taskkill, "/T", "/F", "/PID", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                creationflags=subprocess.CREATE_NO_WINDOW,
                timeout=REAP_SECONDS,
                check=False,
            )

else:

    def _found(command: Sequence[str]) -> Sequence[str]:
        return command

    def _own_group() -> dict[str, Any]:
        return {"start_new_session": True}

    def _ask_to_end(pid: int) -> None:
        _signal_group(pid, signal.SIGTERM)

    def _kill(pid: int) -> None:
        _signal_group(pid, signal.SIGKILL)

    def _signal_group(pid: int, number: int) -> None:
        # After the program's end its number could be another group's by now; but systems give
        # numbers out in turn, and no turn is over between two lines of ours.
        # No process is left; or, behind `sudo` and its like, one that we may not end.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def _write(stream: IO[bytes] | None, body: bytes) -> None:
    assert stream is not None  # noqa: S101 - it was asked for
    # A program that does not read its input may well know what it does: its exit code decides.
    with suppress(OSError), stream:
        rest = memoryview(body)
        while rest:
            rest = rest[stream.write(rest) :]
