"""A real HTTP proxy (tinyproxy) on a free loopback port, which can be killed and frozen."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

from support.eventually import eventually
from support.ports import free_port


def executable() -> str | None:
    """Where tinyproxy is, if it is installed."""
    return shutil.which("tinyproxy")


class TinyProxy:
    """Its address stays the same over `stop` and `start`; `user` makes it ask for a password."""

    def __init__(self, directory: Path, *, user: tuple[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log = directory / "tinyproxy.log"
        lines = [f"Port {self.port}", "Listen 127.0.0.1", "Timeout 600", f'LogFile "{self.log}"']
        lines += ["LogLevel Info", "MaxClients 50", "Allow 127.0.0.1"]
        lines += [f"BasicAuth {user[0]} {user[1]}"] if user else []
        self._config = directory / "tinyproxy.conf"
        self._config.write_text("\n".join([*lines, ""]))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://{f'{user[0]}:{user[1]}@' if user else ''}127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        found = executable()
        assert found is not None
        self._process = subprocess.Popen([found, "-d", "-c", str(self._config)])
        eventually(self._listens, what="the proxy", timeout=30)

    def kill(self) -> None:
        """SIGKILL: connections through it end at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def freeze(self) -> None:
        """It stops working, with its connections open."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        # A thread on another core goes on until the signal has reached it.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """It works on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def connects(self) -> int:
        """How many CONNECT requests it logged."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return len(re.findall(r"Request \(.*\): CONNECT ", text))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
