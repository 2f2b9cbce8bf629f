"""What one poll a second costs while nothing happens: CPU per poll, and resident memory.

Everything that is compared runs at the same time, each against an IMDS of its own, and is looked at
over the same seconds.
"""

import statistics
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from tests.benchmarks.far_end import Kind, far_end
from tests.benchmarks.figures import Figure, Limit
from tests.benchmarks.measure import PYTHON, bridge, cpu_seconds, resident_mib, running

TITLE: Final = "Idle cost"
MAX_CPU_MS: Final = 5.0
"""Of each second: half a hundredth of a core."""
MAX_MIB: Final = 60.0
"""Resident, with MQTT and the HTTP server."""
WINDOWS: Final = 5
WINDOW_SECONDS: Final = 8.0
SETTLE_SECONDS: Final = 8.0
_PATIENCE: Final = 30.0
_SLEEP: Final = "; import time; time.sleep(3600)"
_PRESCRIBED: Final = "import requests, pydantic_settings, apscheduler.schedulers.background"
_METRICS: Final = ", prometheus_client"
LIBRARIES: Final[Mapping[Kind, str]] = {
    "mqtt": ", paho.mqtt.client",
    "eventhub": ", azure.eventhub",
    "webhook": "",
}
_OFF: Final = {"SEB_HTTP__LISTEN": ""}


def measure(
    scratch: Path,
    *,
    windows: int = WINDOWS,
    seconds: float = WINDOW_SECONDS,
    settle: float = SETTLE_SECONDS,
) -> Any:
    """By contestant: milliseconds of CPU a second, and MiB; and what the imports alone take."""
    scratch = scratch / "idle"
    scratch.mkdir()
    with ExitStack() as stack:
        pids = {"bare": _bare(stack, scratch)}
        for kind in LIBRARIES:
            far = stack.enter_context(far_end(kind, _directory(scratch, kind)))
            pids[kind] = _bridge(stack, scratch, kind, far.variables)
            if kind == "mqtt":
                pids["mqtt_no_http"] = _bridge(stack, scratch, "silent", {**far.variables, **_OFF})
            pids[f"imports_{kind}"] = _imports(stack, scratch, LIBRARIES[kind] + _METRICS)
        pids["imports_mqtt_no_http"] = _imports(stack, scratch, LIBRARIES["mqtt"])
        time.sleep(settle)
        spent = [_window(pids, seconds) for _ in range(windows)]
        memory = {name: round(resident_mib(pid), 1) for name, pid in pids.items()}
    return {
        name: {
            "cpu_ms": round(1000 * statistics.median(each[name] for each in spent), 2),
            "mib": memory[name],
        }
        for name in pids
    }


def _directory(scratch: Path, name: str) -> Path:
    made = scratch / name
    made.mkdir(exist_ok=True)
    return made


def _window(pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Seconds of CPU a second of each process, over the same window."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    started = time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - started
    return {name: (cpu_seconds(pid) - before[name]) / lasted for name, pid in pids.items()}


def _bare(stack: ExitStack, scratch: Path) -> int:
    simulator = stack.enter_context(Simulator())
    loop = [PYTHON, "-m", "tests.benchmarks.bare_loop", simulator.url, "1"]
    return stack.enter_context(running(loop, _directory(scratch, "bare"))).pid


def _bridge(stack: ExitStack, scratch: Path, name: str, variables: Mapping[str, str]) -> int:
    # A VM of its own: two bridges of one VM would take the connection from each other.
    simulator = stack.enter_context(Simulator(vm=SimulatedVm(vm_id=str(uuid.uuid4()))))
    directory = _directory(scratch, f"bridge-{name}")
    process = stack.enter_context(bridge(simulator, directory, directory / "state", variables))
    if not simulator.wait_for_gets(2, timeout=_PATIENCE):
        raise TimeoutError("the bridge does not poll")
    return process.pid


def _imports(stack: ExitStack, scratch: Path, libraries: str) -> int:
    command = [PYTHON, "-c", _PRESCRIBED + libraries + _SLEEP]
    return stack.enter_context(running(command, _directory(scratch, "imports"))).pid


def figures(found: Any) -> list[Figure]:
    """CPU and memory of each kind of sink, and without the HTTP server."""
    made = []
    for name, words in _WORDS.items():
        ours, imports = found[name], found[f"imports_{name}"]
        made += [
            Figure(
                what=f"CPU per poll, {words}",
                ours=f"{ours['cpu_ms']} ms",
                peer=f"{found['bare']['cpu_ms']} ms: a bare loop of requests",
                ratio=ours["cpu_ms"] / found["bare"]["cpu_ms"],
                limit=Limit(measured=ours["cpu_ms"], unit="ms", at_most=MAX_CPU_MS),
                why=_WHY_CPU,
            ),
            Figure(
                what=f"resident memory, {words}",
                ours=f"{ours['mib']} MiB",
                peer=f"{imports['mib']} MiB: a Python that imports {_IMPORTED[name]}",
                ratio=ours["mib"] / imports["mib"],
                limit=Limit(measured=ours["mib"], unit="MiB", at_most=MAX_MIB),
                why=_WHY_MEMORY,
            ),
        ]
    return made


_WORDS: Final = {
    "mqtt": "MQTT, with the HTTP server",
    "mqtt_no_http": "MQTT, without the HTTP server",
    "webhook": "a webhook, with the HTTP server",
    "eventhub": "Event Hubs, with the HTTP server",
}
_WHY_CPU: Final = (
    "beside the poll there are a scheduler, a look at the clocks four times a second that measures "
    "pauses of the VM, and a connection to keep"
)
_WHY_MEMORY: Final = (
    "beside the libraries there are the bridge's own code and settings, SQLite, and the HTTP server"
)
_COMMON: Final = "requests, pydantic-settings, APScheduler"
_IMPORTED: Final = {
    "mqtt": f"{_COMMON}, paho-mqtt and prometheus-client",
    "mqtt_no_http": f"{_COMMON} and paho-mqtt",
    "webhook": f"{_COMMON} and prometheus-client",
    "eventhub": f"{_COMMON}, azure-eventhub and prometheus-client",
}
