"""Three VMs with one service on them, a bridge on each, a simulator of IMDS for each, a console."""

import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self
from uuid import NAMESPACE_URL, uuid5

from support.console.decision_bench import made_key
from support.console.process import ConsoleProcess

from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from console.ingest.vm_secrets import pull_token, read_key, secret_text, webhook_secret
from tests.survive.machine import MemberVm, Unit

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "deploy" / "recipes"
MEMBERS = 3
SETTLE_SECONDS = 300.0
"""How long a service may take on a busy machine until it is what it should be."""


class Cluster(ABC):
    """A service of three members; a context manager that ends everything it started."""

    NAME: ClassVar[str]
    """The directory of its recipe."""
    TITLE: ClassVar[str]
    NOTE: ClassVar[str] = ""
    """What the page says below its table."""
    TOOLS: ClassVar[tuple[str, ...]]
    """The commands that its recipe runs."""

    @classmethod
    def missing(cls) -> str:
        """Why it cannot run on this machine; empty if it can."""
        return ""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"seb-survive-{self.NAME}-"))
        self.directory.chmod(0o755)
        self.simulators = [
            Simulator(
                vm=SimulatedVm(
                    name=f"{self.NAME}-{number}",
                    vm_id=str(uuid5(NAMESPACE_URL, f"seb-survive/{self.NAME}/{number}")),
                ),
                approval_delay=0.5,
            )
            for number in range(MEMBERS)
        ]
        self.machines = [
            MemberVm(simulator.vm.name, self.directory / simulator.vm.name)
            for simulator in self.simulators
        ]
        control, self._trust = made_key(self.directory / "keys")
        self.console = ConsoleProcess(self.directory / "console", KEY=str(control), PULL="true")
        self.console.begin = _begin
        self._group = (RECIPES / self.NAME / "group.json").read_text().strip()
        lines = (RECIPES / self.NAME / "seb.env").read_text().splitlines()
        self.settings = dict(line.split("=", 1) for line in lines if line.startswith("SEB_"))
        """The bridge's, as the recipe's page has them."""
        self._install()

    # What each service says of itself.

    @abstractmethod
    def units(self, number: int) -> Mapping[str, Unit]:
        """What a member runs."""

    @abstractmethod
    def recipe_environment(self, number: int) -> Mapping[str, str]:
        """The variables that the recipe's page asks for."""

    @abstractmethod
    def leader(self) -> int:
        """The member that an event hurts most."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether every member takes part, and no recipe holds anything."""

    @abstractmethod
    def client(self) -> Mapping[str, Any]:
        """What `load.py` needs to reach it."""

    @abstractmethod
    def versions(self) -> str:
        """What was run, with versions."""

    def prepare_once(self) -> None:  # noqa: B027  # most services need none
        """What is done once, once the cluster is whole and before the first client."""

    def may_boot(self, number: int) -> bool:  # most services find each other
        """Whether the members before this one are far enough when the cluster begins."""
        return True

    def start_shared(self) -> None:  # noqa: B027  # most services need none
        """Start what stands on no member."""

    def stop_shared(self) -> None:  # noqa: B027  # most services need none
        """End what `start_shared` started."""

    # The same for all.

    @property
    def program(self) -> Path:
        """The recipe's program, as its page has it installed."""
        return self.directory / "lib" / f"{self.NAME}.sh"

    def _install(self) -> None:
        self.program.parent.mkdir()
        for each in (RECIPES / "recipe.sh", RECIPES / self.NAME / self.program.name):
            shutil.copy(each, self.program.parent)
        self.program.chmod(0o755)

    def bridge(self, number: int, *, enabled: bool, by_group: bool = False) -> Unit:
        """The bridge of a member, with the settings of the recipe's page; `by_group`: the console
        approves, and not a rule on the VM.
        """
        machine, vm = self.machines[number], self.simulators[number].vm
        key = read_key(self.console.key_file)
        secret = webhook_secret(key, vm.vm_id)
        settings = {
            **self.settings,
            "SEB_IMDS__URL": self.simulators[number].url,
            "SEB_STATE_DIR": str(machine.directory / "seb"),
            "SEB_HTTP__LISTEN": "",
            "SEB_SITE": self.NAME,
            "SEB_SINK__CONSOLE__KIND": "webhook",
            "SEB_SINK__CONSOLE__URL": f"{self.console.url}/ingest/v1/records",
            "SEB_SINK__CONSOLE__SECRET": secret_text(secret),
            "SEB_SINK__RECIPE__COMMAND": str(self.program),
        }
        if by_group:
            del settings["SEB_APPROVAL__RULES"]
            settings |= {
                "SEB_APPROVAL__TRUST": str(self._trust),
                "SEB_COMMANDS__PULL_URL": f"{self.console.url}/pull/v1/commands",
                "SEB_COMMANDS__PULL_TOKEN": pull_token(key, vm.vm_id),
            }
        return Unit(
            command=[sys.executable, "-m", "bridge", "run"],
            env={"PYTHONPATH": str(ROOT), **settings, **self.recipe_variables(number)},
            cwd=str(machine.directory),
            enabled=enabled,
        )

    def recipe_variables(self, number: int) -> dict[str, str]:
        """The recipe's own, and a place for its marks."""
        marks = self.machines[number].directory / "marks"
        return {"MARKS": str(marks), **self.recipe_environment(number)}

    def use_bridges(self, *, wanted: bool, by_group: bool = False) -> None:
        """Run a bridge on every member, or on none; `by_group`: with the recipe's group at the
        console, which then says whose turn it is.
        """
        self._use_group(self._group if by_group else "[]")
        for number, machine in enumerate(self.machines):
            machine.ask("stop", "seb")
            machine.define("seb", self.bridge(number, enabled=wanted, by_group=by_group))
            machine.ask("start" if wanted else "stop", "seb")
        if wanted:
            for simulator in self.simulators:
                gets = simulator.gets
                assert simulator.wait_for_gets(gets + 2, timeout=60), "a bridge does not poll"

    def _use_group(self, groups: str) -> None:
        """Start the console again if its groups are others."""
        if self.console.environ.get("SEB_CONSOLE_GROUPS", "[]") != groups:
            self.console.environ["SEB_CONSOLE_GROUPS"] = groups
            self.console.kill()
            self.console.start()

    def __enter__(self) -> Self:
        try:
            self.console.start()
            for simulator in self.simulators:
                simulator.start()
            self.start_shared()
            for number, machine in enumerate(self.machines):
                for name, unit in self.units(number).items():
                    machine.define(name, unit)
                wait_for(partial(self.may_boot, number), what=f"the members before {machine.name}")
                machine.boot()
            wait_for(self.is_whole, what=f"{self.NAME}: a whole cluster")
            self.prepare_once()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End every process; what they wrote stays in `directory`."""
        for machine in self.machines:
            machine.kill()
        for simulator in self.simulators:
            simulator.stop()
        self.stop_shared()
        self.console.kill()


def holds(done: Callable[[], bool]) -> bool:
    """Whether it holds; a service that does not answer does not."""
    try:
        return done()
    except (OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError):
        return False


def wait_for(done: Callable[[], bool], *, what: str, seconds: float = SETTLE_SECONDS) -> float:
    """Wait until it holds, and look five times a second; returns the seconds that it took.

    Raises `TimeoutError`.
    """
    begun = time.monotonic()
    while not holds(done):
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.2)
    return time.monotonic() - begun


def _begin(
    arguments: list[str], *, env: Mapping[str, str], out: Path, err: Path
) -> subprocess.Popen[bytes]:
    with out.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "bridge", *arguments],
            env={**env, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
