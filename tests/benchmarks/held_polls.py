"""Thousands of VMs that wait for commands over HTTPS at one console.

One console on SQLite, and VMs in another process, each with a long poll of 25 s over its own
connection.
"""

import base64
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import requests
from support.ports import free_port

from console.service.uvicorn_protocol import ConnectionLimits
from tests.benchmarks.figures import Figure, Limit
from tests.benchmarks.measure import PYTHON, SEB, cpu_seconds, environment, resident_mib, running

TITLE: Final = "Commands over HTTPS"
OURS: Final = "the console"
VMS: Final = 5000
TOO_MANY: Final = 11_000
MAX_HELD: Final = ConnectionLimits().polls
LIMIT_MIB: Final = 300.0
LOOK_SECONDS: Final = 20.0
_PATIENCE: Final = 120.0
_HELD: Final = re.compile(r"^seb_console_polls_held (\S+)", re.MULTILINE)


class _Console:
    """A console of its own, and how it stands."""

    def __init__(self, scratch: Path) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self.key_file = scratch / "enroll.key"
        self.key_file.write_text(base64.b64encode(os.urandom(32)).decode())
        self.variables = {
            "SEB_CONSOLE_STATE_DIR": str(scratch / "state"),
            "SEB_CONSOLE_LISTEN": address,
            "SEB_CONSOLE_SOURCE__WEBHOOK__KIND": "webhook",
            "SEB_CONSOLE_ENROLL_KEY_FILE": str(self.key_file),
            "SEB_CONSOLE_PULL": "true",
        }
        self._http = requests.Session()
        self._http.trust_env = False

    def answers(self) -> bool:
        """Whether it serves."""
        try:
            return self._http.get(f"{self.url}/readyz", timeout=10).status_code == 200
        except requests.RequestException:
            return False

    def held(self) -> int:
        """How many polls it holds."""
        found = _HELD.search(self._http.get(f"{self.url}/metrics", timeout=60).text)
        return 0 if found is None else int(float(found.group(1)))


def measure(
    scratch: Path, *, vms: int = VMS, too_many: int = TOO_MANY, look: float = LOOK_SECONDS
) -> Any:
    """Memory and CPU with so many held polls, a fleet that comes back, and more than fit.

    `look` is for how many seconds it is looked at each time.
    """
    scratch = scratch / "polls"
    scratch.mkdir()
    console = _Console(scratch)
    with running([*SEB, "console", "run"], scratch, console.variables) as process:
        _until(console.answers, "the console")
        alone = resident_mib(process.pid)
        with _vms(console, vms, "record"):
            _until(lambda: console.held() >= vms, "every poll")
            before = cpu_seconds(process.pid)
            time.sleep(look)
            cpu = (cpu_seconds(process.pid) - before) / look
            memory = resident_mib(process.pid)
        _until(lambda: console.held() == 0, "every place")
        begun = time.monotonic()
        with _vms(console, vms):
            _until(lambda: console.held() >= vms, "every poll again")
            back = time.monotonic() - begun
        _until(lambda: console.held() == 0, "every place")
        with _vms(console, too_many):
            _until(lambda: console.held() >= min(too_many, MAX_HELD), "as many as fit")
            time.sleep(look)
            held, crowded = console.held(), resident_mib(process.pid)
            begun = time.monotonic()
            serves = console.answers()
            answer = time.monotonic() - begun
        return {
            "vms": vms,
            "alone_mib": round(alone, 1),
            "memory_mib": round(memory, 1),
            "cpu": round(cpu, 3),
            "back_s": round(back, 1),
            "too_many": too_many,
            "held_of_too_many": held,
            "crowded_mib": round(crowded, 1),
            "crowded_serves": serves,
            "crowded_answer_ms": round(answer * 1000, 1),
        }


@contextmanager
def _vms(console: _Console, count: int, *more: str) -> Iterator[None]:
    """So many VMs in a process of their own, which ends without a farewell."""
    words = [console.url, str(console.key_file), str(count), *more]
    process = subprocess.Popen(
        [PYTHON, "-m", "tests.benchmarks.held_polls_vms", *words],
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {_PATIENCE:g} s")
        time.sleep(0.2)


def figures(found: Any) -> list[Figure]:
    """The figures; memory has a limit."""
    vms, too_many = found["vms"], found["too_many"]
    return [
        Figure(
            what=f"a console that holds the polls of {vms:,} VMs, whose heartbeats it has",
            ours=f"{found['memory_mib']:.0f} MiB resident, {found['cpu'] * 100:.1f} % of a core",
            peer=f"without VMs it has {found['alone_mib']:.0f} MiB",
            limit=Limit(measured=found["memory_mib"], unit="MiB", at_most=LIMIT_MIB),
            why="about 16 KiB for each held request, and what a VM is in memory",
        ),
        Figure(
            what=f"{vms:,} VMs lose their connections and ask again at once, until all are held",
            ours=f"{found['back_s']:.1f} s",
        ),
        Figure(
            what=f"{too_many:,} VMs ask; those beyond its limit are told when to ask again",
            ours=f"{found['held_of_too_many']:,} are held, {found['crowded_mib']:.0f} MiB resident",
            peer=f"`/readyz` answers in {found['crowded_answer_ms']:.0f} ms",
        ),
    ]
