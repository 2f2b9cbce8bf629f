"""Slurm: three nodes; the controller and munge stand on no VM of theirs."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.ports import free_port

from tests.survive.cluster import MEMBERS, Cluster
from tests.survive.machine import Unit

OPEN_FOR_JOBS = {"idle", "mixed", "allocated", "completing", "planned"}
CONFIGURATION = """
ClusterName=survive
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CryptoType=crypto/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
SlurmdTimeout=30
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdSpoolDir={directory}/%n/spool
SlurmdPidFile={directory}/%n/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm(Cluster):
    """A job goes to the first node that is free, so that is the leader."""

    NAME = "slurm"
    TITLE = "Slurm"
    NOTE = (
        "A write is a job of `srun`, a read is a question to the controller, which stands on none "
        "of the VMs. Failed are jobs that died with their node, or that did not end within 20 s. "
        "`SlurmdTimeout` is 30 s instead of 300 s, and a node that was rebooted takes jobs by "
        "itself (`ReturnToService=2`)."
    )
    TOOLS = ("sinfo", "squeue", "scontrol", "systemctl")

    def __init__(self) -> None:
        super().__init__()
        self._munge: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None
        self.conf = self.directory / "slurm.conf"
        (self.directory / "munge").mkdir(mode=0o755)
        (self.directory / "state").mkdir()
        key = self.directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        nodes = [
            f"NodeName={vm.name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} "
            f"CPUs=2 Weight={weight}\n"
            for weight, vm in enumerate(self.machines, 1)
        ]
        text = CONFIGURATION.format(
            controller=free_port(), directory=self.directory, user=Path(key).owner()
        )
        first, last = text.split("PartitionName")
        self.conf.write_text(f"{first}{''.join(nodes)}PartitionName{last}")

    @property
    def _env(self) -> dict[str, str]:
        return {**self.machines[0].environment, "SLURM_CONF": str(self.conf)}

    def start_shared(self) -> None:
        (self.directory / "results").touch()
        munge = ["munged", "--foreground", f"--key-file={self.directory}/munge.key"]
        files = ("socket", "seed-file", "pid-file", "log-file")
        munge += [f"--{each}={self.directory}/munge/{each}" for each in files]
        self._munge = self._begin(munge)
        self.start_controller()

    def _begin(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{command[0]}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._env)

    def start_controller(self) -> None:
        """Start slurmctld; it goes on where it ended."""
        self._controller = self._begin(["slurmctld", "-D"])

    def stop_controller(self) -> None:
        """Let it end by itself."""
        if self._controller is not None:
            self._controller.terminate()
            self._controller.wait(30)

    def stop_shared(self) -> None:
        for each in (self._controller, self._munge):
            if each is not None:
                each.kill()
                each.wait()

    def units(self, number: int) -> Mapping[str, Unit]:
        env = {"SLURM_CONF": str(self.conf), "SLURM_NODE": self.machines[number].name}
        # -b: it says that the VM was rebooted, which this machine's own uptime does not show.
        command = ["slurmd", "-D", "-b", "-N", self.machines[number].name]
        as_root = {
            f"seb-slurm@{each}": Unit(command=[str(self.program), each], env=env, enabled=False)
            for each in ("drain", "resume", "requeue")
        }
        return {"slurmd": Unit(command=command, env=env), **as_root}

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        return {
            "SLURM_CONF": str(self.conf),
            "SLURM_NODE": self.machines[number].name,
            "SLURM_LEAST": str(MEMBERS - 1),
        }

    def ask(self, *command: str) -> str:
        """What a tool of Slurm says. Raises `subprocess.SubprocessError`."""
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=20, env=self._env
        )
        return done.stdout

    def _open(self) -> set[str]:
        """The nodes that take jobs."""
        rows = [line.split() for line in self.ask("sinfo", "-haN", "-o", "%N %T").splitlines()]
        return {name for name, state in rows if state in OPEN_FOR_JOBS}

    def leader(self) -> int:
        found = self._open()
        return next(number for number, vm in enumerate(self.machines) if vm.name in found)

    def is_whole(self) -> bool:
        return len(self._open()) == MEMBERS

    def client(self) -> Mapping[str, Any]:
        return {
            "kind": "slurm",
            "conf": str(self.conf),
            "results": str(self.directory / "results"),
        }

    def versions(self) -> str:
        output = subprocess.check_output(["slurmctld", "-V"], text=True, env=self._env)
        return f"Slurm {output.split()[1]}"
