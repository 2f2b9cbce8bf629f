"""RabbitMQ: three nodes and a quorum queue."""

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from support.ports import free_port

from tests.survive.clients import load
from tests.survive.cluster import MEMBERS, Cluster, wait_for
from tests.survive.machine import Unit

TOOLS = "/usr/lib/rabbitmq/bin"  # those in /usr/sbin insist on an account

LEADER = "rabbit_amqqueue:info(hd(rabbit_amqqueue:list()), [leader])."
IS_WHOLE = f"""
    Running = lists:filter(fun rabbit:is_running/1, [node() | nodes()]),
    States = [rabbit_maintenance:status_consistent_read(Node) || Node <- Running],
    Members = [rabbit_amqqueue:info(Queue, [online]) || Queue <- rabbit_amqqueue:list()],
    Turns = [proplists:get_value(value, Each) || Each <- rabbit_runtime_parameters:list_global(),
        string:prefix(atom_to_list(proplists:get_value(name, Each)), "seb-turn-") =/= nomatch],
    States =:= lists:duplicate({MEMBERS}, regular) andalso lists:sum(Turns) =:= 0 andalso
        lists:all(fun([{{online, Online}}]) -> length(Online) =:= {MEMBERS} end, Members).
"""


class RabbitMq(Cluster):
    """The defaults for every time limit; the messages are in a quorum queue."""

    NAME = "rabbitmq"
    TITLE = "RabbitMQ"
    NOTE = (
        "The queue is a quorum queue, and the publisher waits for each confirmation. A client that "
        "is connected to a node which stands still waits until that goes on; a node that is killed "
        "closes its connections at once, and little is left to gain."
    )
    TOOLS = ("rabbitmqctl", "rabbitmq-queues", "rabbitmq-upgrade")

    def __init__(self) -> None:
        super().__init__()
        self._epmd_port = free_port()
        self._ports = [free_port() for _ in range(MEMBERS)]
        self._distribution = [free_port() for _ in range(MEMBERS)]
        self.nodes = [f"{vm.name}@localhost" for vm in self.machines]
        self._epmd: subprocess.Popen[bytes] | None = None
        self._secret = os.urandom(12).hex()
        for number, vm in enumerate(self.machines):
            vm.tools = TOOLS
            cookie = vm.directory / ".erlang.cookie"
            cookie.write_text(self._secret)
            cookie.chmod(0o400)
            names = [
                f"cluster_formation.classic_config.nodes.{place} = {name}\n"
                for place, name in enumerate(self.nodes, 1)
            ]
            (vm.directory / "rabbitmq.conf").write_text(
                f"listeners.tcp.local = 127.0.0.1:{self._ports[number]}\n"
                "cluster_formation.peer_discovery_backend = classic_config\n"
                f"{''.join(names)}"
            )

    def _env(self, number: int) -> dict[str, str]:
        directory = self.machines[number].directory
        return {
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": self.nodes[number],
            "RABBITMQ_DIST_PORT": str(self._distribution[number]),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none"
            ),
        }

    def may_boot(self, number: int) -> bool:
        """The first node begins the cluster: others would begin their own if it took long."""
        return number == 0 or self._eval(0, "rabbit:is_running().") == "{ok, true}"

    def start_shared(self) -> None:
        command = ["epmd", "-address", "127.0.0.1", "-port", str(self._epmd_port)]
        with (self.directory / "epmd.log").open("wb") as log:
            self._epmd = subprocess.Popen(command, stdout=log, stderr=log)

    def stop_shared(self) -> None:
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()

    def units(self, number: int) -> Mapping[str, Unit]:
        return {"rabbitmq": Unit(command=[f"{TOOLS}/rabbitmq-server"], env=self._env(number))}

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        env = self._env(number)
        kept = {name: env[name] for name in ("HOME", "ERL_EPMD_PORT")}
        return {**kept, "RABBITMQ_NODE": self.nodes[number]}

    def _eval(self, number: int, expression: str) -> str:
        """What a node answers. It is asked all the time, and `rabbitmqctl eval` costs a second."""
        command = ["erl_call", "-c", self._secret, "-n", self.nodes[number], "-e"]
        env = {**self.machines[number].environment, **self._env(number)}
        done = subprocess.run(
            command,
            input=f"{expression}\n",
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
            env=env,
        )
        return done.stdout

    def leader(self) -> int:
        up = next(number for number, vm in enumerate(self.machines) if vm.is_up)
        said = self._eval(up, LEADER)
        return next(number for number, node in enumerate(self.nodes) if node in said)

    def is_whole(self) -> bool:
        return self._eval(0, IS_WHOLE) == "{ok, true}"

    def prepare_once(self) -> None:
        with load(self.client()):  # the first client declares the queue
            pass
        wait_for(self.is_whole, what="a whole queue")

    def client(self) -> Mapping[str, Any]:
        return {"kind": "rabbitmq", "ports": self._ports}

    def versions(self) -> str:
        output = subprocess.check_output([f"{TOOLS}/rabbitmqctl", "version"], text=True)
        return f"RabbitMQ {output.strip()}"
