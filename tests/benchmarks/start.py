"""From the start of the process to its first poll, and how long a command takes."""

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from support.ports import free_port

from bridge.cli import COMMANDS
from bridge.simulator.simulator import Simulator
from tests.benchmarks.far_end import KINDS, far_end
from tests.benchmarks.figures import Figure
from tests.benchmarks.measure import PYTHON, SEB, run, running

TITLE: Final = "Start"
ROUNDS: Final = 9
_PATIENCE: Final = 30.0


def measure(scratch: Path, *, rounds: int = ROUNDS) -> Any:
    """Seconds: to the first poll by kind of sink, and of each command."""
    scratch = scratch / "start"
    scratch.mkdir()
    return {"first_poll_s": _first_polls(scratch, rounds), "command_s": _commands(scratch, rounds)}


def _first_polls(scratch: Path, rounds: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {}
    with ExitStack() as stack:
        for kind in KINDS:
            (scratch / kind).mkdir()
        fars = [stack.enter_context(far_end(kind, scratch / kind)) for kind in KINDS]
        for number in range(rounds):
            for far in fars:
                state = {"SEB_STATE_DIR": str(scratch / f"{far.kind}-{number}")}
                variables = {**far.variables, **state, "SEB_HTTP__LISTEN": "127.0.0.1:0"}
                found = _first_poll([*SEB, "run"], scratch, variables)
                taken.setdefault(far.kind, []).append(found)
            loop = [PYTHON, "-m", "tests.benchmarks.bare_loop", _URL, "1", "mqtt", fars[0].address]
            taken.setdefault("bare", []).append(_first_poll(loop, scratch, {}))
    return _medians(taken)


_URL: Final = "URL"


def _first_poll(command: Sequence[str], scratch: Path, variables: Mapping[str, str]) -> float:
    with Simulator() as simulator:
        named = [simulator.url if word == _URL else word for word in command]
        started = time.monotonic()
        with running(named, scratch, {**variables, "SEB_IMDS__URL": simulator.url}):
            if not simulator.wait_until_served(timeout=_PATIENCE):
                raise TimeoutError("the first poll did not come")
            first = simulator.history[0].first_served
    assert first is not None
    return first - started


def _commands(scratch: Path, rounds: int) -> dict[str, float]:
    """Each command against a bridge that runs, with an MQTT sink."""
    taken: dict[str, list[float]] = {}
    (scratch / "commands").mkdir()
    with Simulator() as simulator, far_end("mqtt", scratch / "commands") as far:
        variables = {
            **far.variables,
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(scratch / "commands" / "state"),
            "SEB_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
        }
        with running([*SEB, "run"], scratch, variables):
            simulator.wait_until_served(gets=2, timeout=_PATIENCE)
            for _ in range(rounds):
                bare = run([PYTHON, "-c", ""], scratch)
                taken.setdefault("python", []).append(bare)
                for name in ("version", "schema", "check", "status"):
                    if name in COMMANDS:
                        seconds = run([*SEB, name], scratch, variables)
                        taken.setdefault(name, []).append(seconds)
    return _medians(taken)


def _medians(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(statistics.median(each), 3) for name, each in taken.items()}


def figures(found: Any) -> list[Figure]:
    """The figures, none of which has a limit."""
    first, commands = found["first_poll_s"], found["command_s"]
    made = [
        Figure(
            what=f"start of the process \u2192 first poll, {_SINKS[name]}",
            ours=f"{seconds} s",
            peer=f"{first['bare']} s: the small loop with paho-mqtt",
            ratio=seconds / first["bare"],
        )
        for name, seconds in first.items()
        if name != "bare"
    ]
    return made + [
        Figure(
            what=f"`seb {name}`",
            ours=f"{seconds} s",
            peer=f"{commands['python']} s: a Python that does nothing",
            ratio=seconds / commands["python"],
        )
        for name, seconds in commands.items()
        if name != "python"
    ]


_SINKS: Final = {"mqtt": "MQTT", "webhook": "a webhook", "eventhub": "Event Hubs"}
