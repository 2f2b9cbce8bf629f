"""A bridge with many webhooks, each with a receiver that can be told how to answer."""

import re
import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Self

from support.eventually import eventually
from support.faults.many_sinks import ManySinks
from support.faults.proxy import FaultProxy
from support.faults.sink_ends import variables
from support.sinks.http_server import HttpServer

_ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')


class Trap:
    """A port that nobody has a reason to visit; a context manager that listens and counts."""

    def __init__(self, host: str) -> None:
        self.visits = 0
        self._listener = socket.create_server((host, 0))
        self.host = host
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._count, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _count(self) -> None:
        with suppress(OSError):
            while True:
                self._listener.accept()[0].close()
                self.visits += 1

    def works(self) -> bool:
        """Whether it would have seen somebody: visit it."""
        before = self.visits
        socket.create_connection((self.host, self.port), timeout=5).close()
        eventually(lambda: self.visits > before, what="a visit to the trap")
        return True


class Hooks:
    """Webhooks by name, and the bridge that calls them; a context manager."""

    def __init__(self, home: Path) -> None:
        self.servers: dict[str, HttpServer] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self._home = home
        self._stack = ExitStack()
        self._env: dict[str, str] = {}
        self._refusals: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def refuse(self, name: str, status: int, *, headers: dict[str, str]) -> None:
        """Have a webhook not take its next request: that is no arrival."""
        self.servers[name].answer(status=status, headers=headers)
        self._refusals[name] = self._refusals.get(name, 0) + 1

    def add(self, name: str) -> HttpServer:
        """A webhook of this name; its receiver takes everything until it is told otherwise."""
        server = self._stack.enter_context(HttpServer())
        proxy = self._stack.enter_context(FaultProxy(server.port))
        url = f"http://{proxy.host}:{proxy.port}/{name}"
        self._env |= variables(name, {"kind": "webhook", "url": url})
        self.servers[name], self.proxies[name] = server, proxy
        return server

    def start(
        self, more: Mapping[str, str] | None = None, *, trace: Path | None = None
    ) -> ManySinks:
        """A bridge that calls them; `trace` gets the system's account of its connections."""
        env = {**self._env, **(more or {})}
        strace = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "--trace=connect", "-o", str(trace)]
        prefix = strace if trace else []
        return self._stack.enter_context(ManySinks(self._home, env, prefix=prefix))

    def received(self) -> dict[str, Callable[[], list[bytes]]]:
        """What every receiver took, for the oracle."""
        return {name: partial(self._taken, name) for name in self.servers}

    def _taken(self, name: str) -> list[bytes]:
        requests = self.servers[name].requests()
        return [request.body for request in requests[self._refusals.get(name, 0) :]]


def can_trace() -> bool:
    """Whether the system's account of connections can be had."""
    return shutil.which("strace") is not None


def addresses(trace: Path) -> set[str]:
    """Every internet address that a traced process tried to connect to."""
    return {first or second for first, second in _ADDRESS.findall(trace.read_text())}
