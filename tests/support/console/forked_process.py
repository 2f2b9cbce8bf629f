"""Starts `seb console` without the second of imports that each start costs.

One process for each test worker has imported everything, and forks for each start. What runs is the
same code with the settings that it is given, in a process of its own that signals reach and end.

Usage::

    process = start(["console", "run"], env=environ, out=log, err=log)
    process.kill()
    assert finished(["console", "check"], env=environ).returncode == 0
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_PATIENCE = 60.0
_IMPORTED = (
    "bridge.cli.console",
    "console.cli.approve",
    "console.cli.audit",
    "console.cli.check",
    "console.cli.enroll",
    "console.cli.run",
    "console.cli.token",
    "console.service.console",
    "sinks.shared.logs",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "uvicorn.loops.auto",
)


class ForkedProcess:
    """A process that was started, with what `subprocess.Popen` offers to end it."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told.makefile("r")
        self._socket = told
        self._code: int | None = None
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._code is None and select.select([self._socket], [], [], 0)[0]:
            self._end()
        return self._code

    def wait(self, timeout: float = _PATIENCE) -> int:
        """Its exit code, once it has ended. Raises `subprocess.TimeoutExpired`."""
        if self._code is None:
            if not select.select([self._socket], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._end()
        assert self._code is not None
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a word."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self._code = int(self._told.readline())
        self._told.close()
        self._socket.close()


def start(words: Sequence[str], *, env: Mapping[str, str], out: Path, err: Path) -> ForkedProcess:
    """Start `seb` with these words; its outputs are appended to files."""
    told = socket.socket(socket.AF_UNIX)
    told.settimeout(_PATIENCE)
    told.connect(_server())
    files = {"out": str(out), "err": str(err), "place": str(Path.cwd())}
    told.sendall(json.dumps({"words": list(words), "env": dict(env), **files}).encode() + b"\n")
    return ForkedProcess(told)


def executed(
    words: Sequence[str], *, env: Mapping[str, str], out: Path, err: Path
) -> subprocess.Popen[bytes]:
    """The same without the server, as users start it: for what is measured."""
    command = [sys.executable, "-m", "bridge", *words]
    with out.open("ab") as told, err.open("ab") as log:
        return subprocess.Popen(command, env=dict(env), stdout=told, stderr=log)


def finished(words: Sequence[str], *, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `seb` with these words to its end."""
    with tempfile.TemporaryDirectory(prefix="seb-forked-") as place:
        out, err = Path(place) / "out", Path(place) / "err"
        code = start(words, env=env, out=out, err=err).wait()
        return subprocess.CompletedProcess(list(words), code, out.read_text(), err.read_text())


@cache
def _server() -> str:
    """The address of this worker's server, which ends with it."""
    address = str(Path(tempfile.mkdtemp(prefix="seb-forking-")) / "socket")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SEB_")}
    process = subprocess.Popen(
        [sys.executable, __file__, address],
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(_end, process)
    return address


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server ends once its standard input is closed; what it has started goes on."""
    process.communicate(timeout=_PATIENCE)


def _serve(address: str) -> dict[str, Any]:
    """Fork for each connection; returns, in a new process, what is to be run there."""
    for name in _IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1  # a fork takes no thread along
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in readable:  # closed: the tests are over
            Path(address).unlink()
            Path(address).parent.rmdir()
            sys.exit(0)
        told, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _keep(told)
        told.close()


def _keep(told: socket.socket) -> dict[str, Any]:
    """Fork once more, tell the number of that process, and how it has ended."""
    with told, told.makefile("r") as asking:
        asked: dict[str, Any] = json.loads(asking.readline())
        pid = os.fork()
        if pid == 0:
            return asked
        told.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        told.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)


def _become(asked: dict[str, Any]) -> None:
    """Take on outputs, environment, place and words."""
    appended = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    files = [os.open(os.devnull, os.O_RDONLY)]
    files += [os.open(asked[name], appended, 0o600) for name in ("out", "err")]
    for theirs, ours in enumerate(files):
        os.dup2(ours, theirs)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["place"])
    sys.argv = ["seb", *asked["words"]]


if __name__ == "__main__":
    _become(_serve(sys.argv[1]))
    from bridge.cli import main

    main()
