"""strace as a way to die, or to have a bad disk, at one exact system call."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

from support.patience import PATIENCE


class Injection:
    """One rule of tampering, in strace's words, at a process that runs; a context manager.

    `fdatasync:signal=KILL:when=1` kills it as a thread enters its first fdatasync from now on;
    with a path, its first fdatasync of that file.
    """

    def __init__(self, pid: int, rule: str, *, path: Path | None = None) -> None:
        calls = rule.partition(":")[0]
        self._command = [
            *("strace", "-f", "-p", str(pid), "-o", os.devnull),
            *("-e", f"trace={calls}", "-e", f"inject={rule}"),
            *(() if path is None else ("-P", str(path))),
        ]
        self._attached = threading.Event()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, name="strace", daemon=True)
        self._reader.start()
        assert self._attached.wait(PATIENCE), "strace did not attach"
        assert self._process.poll() is None, "strace could not attach"
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)  # it lets go of the process, which goes on
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stderr
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            if "attached" in line:
                self._attached.set()
        self._attached.set()  # it ended, which `__enter__` says


def under(*rules: str, log: Path | None = None, calls: Sequence[str] = ()) -> list[str]:
    """The words before a command that run it with these rules in force; `log` gets a line for
    each of `calls` and of the calls that the rules name.

    The command keeps its own process id: strace stands behind it, not before.
    """
    traced = [*dict.fromkeys([*calls, *(rule.partition(":")[0] for rule in rules)])]
    told = ["-ttt", "-yy", "-s", "65536", "-o", str(log)] if log else ["-o", os.devnull]
    injected = [word for rule in rules for word in ("-e", f"inject={rule}")]
    watched = ["-e", f"trace={','.join(traced)}", "-e", "signal=none"]
    return ["strace", "-D", "-f", "-qq", "--seccomp-bpf", *told, *watched, *injected, "--"]


@cache
def why_not() -> str | None:
    """Why there is no strace that works here; None where there is one."""
    if not sys.platform.startswith("linux"):
        return "strace is of Linux"
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        [*under("getppid:error=EIO"), "true"], capture_output=True, check=False, timeout=PATIENCE
    )
    return None if tried.returncode == 0 else f"strace does not work here: {tried.stderr.decode()}"
