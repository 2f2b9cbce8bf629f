"""A simulated VM: a tree of processes that stands still, dies and boots as one."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ORDINARY_USER = "nobody" if os.geteuid() == 0 else None
"""For services that refuse to be root; None where we are not root anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Something that a VM runs; `user` is the account, None is the one that runs this."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    enabled: bool = True
    cwd: str = "/"


class MemberVm:
    """One VM, in a directory of its own that outlives its death."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.tools = str(HERE / "bin")
        """Where commands are looked for after ours."""
        self.units: dict[str, Unit] = {}
        self._init: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        directory.chmod(0o755)

    @property
    def control(self) -> Path:
        """The socket of its service manager."""
        return self.directory / "control"

    @property
    def environment(self) -> dict[str, str]:
        """What every process of this VM finds: a `systemctl` that speaks to its own init."""
        clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("SEB_")}
        path = os.pathsep.join([str(HERE / "bin"), self.tools, os.environ["PATH"], "/usr/sbin"])
        return {**clean, "PATH": path, "SURVIVE_CONTROL": str(self.control)}

    def boot(self) -> None:
        """Start it, with every unit that is enabled; returns once its service manager answers."""
        self.control.unlink(missing_ok=True)
        self._write_units()
        with (self.directory / "init.log").open("ab") as log:
            self._init = subprocess.Popen(
                [sys.executable, "-SE", str(HERE / "init.py"), str(self.directory)],
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 20
        while not self._answers():
            if time.monotonic() > deadline or self._init.poll() is not None:
                raise RuntimeError((self.directory / "init.log").read_text())
            time.sleep(0.02)

    def _write_units(self) -> None:
        text = json.dumps({name: asdict(unit) for name, unit in self.units.items()})
        (self.directory / "units.json").write_text(text)

    def _answers(self) -> bool:
        try:
            self.ask("is-active", "none")
        except (OSError, ValueError):
            return False
        return True

    def ask(self, do: str, unit: str) -> bool:
        """Ask its service manager: start, stop or is-active. Raises `OSError`."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(90)
            control.connect(str(self.control))
            control.sendall(json.dumps({"do": do, "unit": unit}).encode() + b"\n")
            answer = control.makefile().readline()
        return bool(json.loads(answer)["ok"])

    def define(self, name: str, unit: Unit) -> None:
        """Add a unit, or change it; the next start of the unit uses it."""
        self.units[name] = unit
        if self._init is not None:
            self._write_units()

    def freeze(self) -> None:
        """Let every process of it stand still, those that are started meanwhile too."""
        still: set[int] = set()
        while fresh := set(self._processes()) - still:
            for pid in fresh:
                _send(pid, signal.SIGSTOP)
            still |= fresh

    def thaw(self) -> None:
        """Let it go on."""
        for pid in self._processes():
            _send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Pull the plug: no process of it gets a last word."""
        if self._init is None:
            return
        self.freeze()
        for pid in reversed(self._processes()):
            _send(pid, signal.SIGKILL)
        self._init.wait(20)
        self._init = None

    @property
    def is_up(self) -> bool:
        """Whether it was booted and not killed since."""
        return self._init is not None

    def _processes(self) -> list[int]:
        """Its processes, the init first; orphans are its init's children."""
        if self._init is None:
            return []
        children: dict[int, list[int]] = {}
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                with contextlib.suppress(OSError):
                    parent = int(
                        (each / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                    )
                    children.setdefault(parent, []).append(int(each.name))
        found = [self._init.pid]
        for pid in found:  # it grows while it is walked through
            found.extend(children.get(pid, ()))
        return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
