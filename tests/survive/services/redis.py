"""Redis with Sentinel: three servers and three Sentinels."""

import subprocess
from collections.abc import Mapping
from typing import Any

from support.ports import free_port

from tests.survive.cluster import MEMBERS, Cluster
from tests.survive.machine import Unit

MASTER = "mymaster"


class Redis(Cluster):
    """A Sentinel calls a server down after 5 s; asynchronous replicas, as Redis has them."""

    NAME = "redis"
    TITLE = "Redis with Sentinel"
    TOOLS = ("redis-cli", "systemctl")

    def __init__(self) -> None:
        super().__init__()
        self._ports = [free_port() for _ in range(MEMBERS)]
        self._sentinels = [free_port() for _ in range(MEMBERS)]
        for number, machine in enumerate(self.machines):
            self._write_settings(number)
            machine.directory.chmod(0o755)

    def _write_settings(self, number: int) -> None:
        directory = self.machines[number].directory
        replica = f"replicaof 127.0.0.1 {self._ports[0]}\n" if number else ""
        (directory / "redis.conf").write_text(
            f"bind 127.0.0.1\nport {self._ports[number]}\ndir {directory}\nappendonly yes\n"
            f"repl-diskless-sync-delay 0\n{replica}"
        )
        (directory / "sentinel.conf").write_text(
            f"bind 127.0.0.1\nport {self._sentinels[number]}\ndir {directory}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {self._ports[0]} 2\n"
            f"sentinel down-after-milliseconds {MASTER} 5000\n"
            f"sentinel failover-timeout {MASTER} 20000\n"
        )

    def units(self, number: int) -> Mapping[str, Unit]:
        directory = self.machines[number].directory
        return {
            "redis-server": Unit(command=["redis-server", str(directory / "redis.conf")]),
            "sentinel": Unit(command=["redis-sentinel", str(directory / "sentinel.conf")]),
        }

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        places = [f"127.0.0.1:{port}" for port in self._ports]
        return {
            "REDIS_SELF": places[number],
            "REDIS_OTHERS": " ".join(each for each in places if each != places[number]),
            "REDIS_SENTINEL": f"127.0.0.1:{self._sentinels[number]}",
        }

    def _cli(self, port: int, *words: str) -> str:
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(port), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout

    def leader(self) -> int:
        # The Sentinel of a machine that is down does not answer; the others agree.
        up = (port for port, vm in zip(self._sentinels, self.machines, strict=True) if vm.is_up)
        answer = self._cli(next(up), "sentinel", "get-master-addr-by-name", MASTER)
        return self._ports.index(int(answer.split()[1]))

    def is_whole(self) -> bool:
        leader = self.leader()
        said = self._cli(self._ports[leader], "info", "replication")
        quorums = [self._cli(port, "sentinel", "ckquorum", MASTER) for port in self._sentinels]
        masters = [
            self._cli(port, "sentinel", "get-master-addr-by-name", MASTER)
            for port in self._sentinels
        ]
        flags = [self._cli(port, "sentinel", "replicas", MASTER) for port in self._sentinels]
        return (
            said.count("state=online") == MEMBERS - 1
            and all(each.startswith(f"OK {MEMBERS} usable") for each in quorums)
            and len(set(masters)) == 1
            and all(each.count("\nslave\n") >= MEMBERS - 1 for each in flags)
            and not any("failover_in_progress" in each for each in flags)
            and not self._cli(self._ports[leader], "get", "seb:turn").strip()
        )

    def sentinel_pid(self, number: int) -> int:
        """The process of a member's Sentinel."""
        said = self._cli(self._sentinels[number], "info", "server")
        return int(said.partition("process_id:")[2].split()[0])

    def client(self) -> Mapping[str, Any]:
        return {"kind": "redis", "ports": self._sentinels, "name": MASTER}

    def versions(self) -> str:
        output = subprocess.check_output(["redis-server", "--version"], text=True)
        return f"Redis {output.split('v=')[1].split()[0]}"
