"""Three web servers behind one HAProxy, which stands on no VM of theirs."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import requests
from support.ports import free_port

from tests.survive.cluster import MEMBERS, Cluster
from tests.survive.machine import HERE, Unit

CONFIGURATION = """
defaults
    mode http
    retries 3
    option redispatch
    timeout connect 1s
    timeout client 30s
    timeout server 30s
frontend web
    bind 127.0.0.1:{port}
    default_backend web
frontend stats
    bind 127.0.0.1:{stats}
    stats enable
    stats uri /stats
backend web
    balance roundrobin
    option httpchk GET /healthz
    http-check disable-on-404
    default-server check inter 1s fall 2 rise 1
"""


class HaProxy(Cluster):
    """Checked once a second, away after two failures."""

    NAME = "haproxy"
    TITLE = "Web servers behind HAProxy"
    NOTE = (
        "The servers are equal, so the leader is any of them; their data is elsewhere. A server "
        "that is killed refuses connections at once, and HAProxy takes another one: little is "
        "left to gain. One that stands still costs its clients 2 s each, their own limit, until "
        "HAProxy has seen two failed checks."
    )
    TOOLS = ("curl",)

    def __init__(self) -> None:
        super().__init__()
        self._port, self._stats = free_port(), free_port()
        self._servers = [free_port() for _ in range(MEMBERS)]
        self._haproxy: subprocess.Popen[bytes] | None = None

    def start_shared(self) -> None:
        (self.directory / "database").touch()
        lines = [
            f"    server {vm.name} 127.0.0.1:{port}\n"
            for vm, port in zip(self.machines, self._servers, strict=True)
        ]
        settings = self.directory / "haproxy.cfg"
        text = CONFIGURATION.format(port=self._port, stats=self._stats)
        settings.write_text(text + "".join(lines))
        with (self.directory / "haproxy.log").open("wb") as log:
            command = ["/usr/sbin/haproxy", "-db", "-f", str(settings)]
            self._haproxy = subprocess.Popen(command, stdout=log, stderr=log)

    def stop_shared(self) -> None:
        if self._haproxy is not None:
            self._haproxy.kill()
            self._haproxy.wait()

    def units(self, number: int) -> Mapping[str, Unit]:
        command = [sys.executable, "-SE", str(HERE / "web.py"), str(self._servers[number])]
        command += [self._drain_file(number), str(self.directory / "database")]
        return {"web": Unit(command=command)}

    def _drain_file(self, number: int) -> str:
        return str(self.machines[number].directory / "draining")

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        return {
            "HAPROXY_STATS": f"http://127.0.0.1:{self._stats}/stats;csv",
            "HAPROXY_BACKEND": "web",
            "HAPROXY_SERVER": self.machines[number].name,
            "DRAIN_FILE": self._drain_file(number),
        }

    def _up(self) -> list[str]:
        """The names of the servers that get requests."""
        answer = requests.get(f"http://127.0.0.1:{self._stats}/stats;csv", timeout=2)
        rows = [line.split(",") for line in answer.text.splitlines()]
        return [row[1] for row in rows if row[0] == "web" and row[17] == "UP"]

    def leader(self) -> int:
        up = self._up()
        return next(number for number, vm in enumerate(self.machines) if vm.name in up)

    def is_whole(self) -> bool:
        return {vm.name for vm in self.machines} <= set(self._up())

    def client(self) -> Mapping[str, Any]:
        return {"kind": "web", "url": f"http://127.0.0.1:{self._port}"}

    def versions(self) -> str:
        output = subprocess.check_output(["/usr/sbin/haproxy", "-v"], text=True)
        return f"HAProxy {output.split()[2].partition('-')[0]}"
