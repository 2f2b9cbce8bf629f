"""How long a change takes to reach the first and the last of several sinks."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bridge.simulator.simulator import Simulator
from tests.benchmarks.far_end import MeasuredEnd, announce, far_end
from tests.benchmarks.measure import bridge

SIZES: Final = (1, 2, 5, 10)


def measure(scratch: Path, *, sizes: Sequence[int] = SIZES, changes: int = 40) -> Any:
    """Milliseconds from IMDS serving a change to the first and to the last webhook having it.

    Bridges with different numbers of sinks run at the same time, and take turns.
    """
    scratch = scratch / "sinks"
    scratch.mkdir()
    with ExitStack() as stack:
        far = stack.enter_context(far_end("webhook", scratch))
        simulators = [_bridge(stack, scratch, far, size) for size in sizes]
        taken = [
            [announce(each, far, count=size) for each, size in zip(simulators, sizes, strict=True)]
            for _ in range(changes)
        ]
    return {
        str(size): {
            "first_ms": round(statistics.median(each[place][0] for each in taken), 2),
            "last_ms": round(statistics.median(each[place][1] for each in taken), 2),
        }
        for place, size in enumerate(sizes)
    }


def _bridge(stack: ExitStack, scratch: Path, far: MeasuredEnd, sinks: int) -> Simulator:
    simulator = stack.enter_context(Simulator())
    variables = {"SEB_POLL_INTERVAL": "0.1", "SEB_HTTP__LISTEN": ""}
    for number in range(sinks):
        variables[f"SEB_SINK__W{number}__KIND"] = "webhook"
        variables[f"SEB_SINK__W{number}__URL"] = far.address
    stack.enter_context(bridge(simulator, scratch, scratch / f"state-{sinks}", variables))
    return simulator
