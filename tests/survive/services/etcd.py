"""etcd: three members on loopback."""

import contextlib
import subprocess
from collections.abc import Mapping
from typing import Any

from support.ports import free_port

from tests.survive.cluster import MEMBERS, Cluster
from tests.survive.machine import Unit


class Etcd(Cluster):
    """A cluster of three, each with its data on a disk that outlives a redeployment."""

    NAME = "etcd"
    TITLE = "etcd"
    NOTE = (
        "A write that is under way when the leadership moves can be lost between two members: "
        "it is not acknowledged, and its client waits for its own limit, which is 2 s here. "
        "So a gap of 2 s with `seb` is one unlucky write."
    )
    TOOLS = ("etcdctl", "systemctl")

    def __init__(self) -> None:
        super().__init__()
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(MEMBERS)]
        self._peers = [f"http://127.0.0.1:{free_port()}" for _ in range(MEMBERS)]

    def units(self, number: int) -> Mapping[str, Unit]:
        name, url, peer = self.machines[number].name, self.urls[number], self._peers[number]
        cluster = ",".join(
            f"{machine.name}={url}" for machine, url in zip(self.machines, self._peers, strict=True)
        )
        command = [
            "etcd",
            "--name",
            name,
            "--data-dir",
            str(self.machines[number].directory / "data"),
        ]
        command += ["--listen-client-urls", url, "--advertise-client-urls", url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", cluster, "--initial-cluster-state", "new"]
        return {"etcd": Unit(command=command)}

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        return {"ETCD_ENDPOINTS": ",".join(self.urls), "ETCD_SELF": self.urls[number]}

    def etcdctl(self, *words: str, endpoints: str | None = None) -> str:
        """What etcdctl says. Raises `subprocess.SubprocessError`."""
        command = ["etcdctl", "--dial-timeout=1s", "--command-timeout=2s"]
        command += [f"--endpoints={endpoints or ','.join(self.urls)}", *words]
        env = {**self.machines[0].environment, "ETCDCTL_API": "3"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=20, env=env
        )
        return done.stdout

    def leader(self) -> int:
        for number, url in enumerate(self.urls):
            with contextlib.suppress(subprocess.SubprocessError):  # a member may be down
                if self.etcdctl("endpoint", "status", endpoints=url).split(", ")[4] == "true":
                    return number
        raise ValueError("no member leads")

    def is_whole(self) -> bool:
        self.etcdctl("endpoint", "health")  # fails if one does not answer
        return not self.etcdctl("get", "seb/turn")

    def client(self) -> Mapping[str, Any]:
        return {"kind": "etcd", "urls": self.urls}

    def versions(self) -> str:
        return "etcd " + subprocess.check_output(["etcd", "--version"], text=True).split()[2]
