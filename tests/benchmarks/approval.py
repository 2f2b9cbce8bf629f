"""From a person's approval to the VM's request to Azure: through the console, and over a broker.

A real console on SQLite, a real bridge, Mosquitto on loopback and the simulator. The time runs from
the request to the console's API to the arrival of the bridge's POST: by then the audit's row is on
disk, the token is signed and verified, and the command is on the VM's disk.
"""

import statistics
import time
from pathlib import Path
from typing import Any, Final

from support.console.decision_bench import DecisionBench, audit, decide
from support.console.process import ConsoleProcess
from support.eventually import eventually

from tests.benchmarks.figures import Figure, Limit, ms

TITLE: Final = "From approving to Azure"
OURS: Final = "the console"
MAX_CHARACTERS: Final = 50.0
"""Milliseconds, median."""
ROUNDS: Final = 25
WARM_UP: Final = 4
"""With the rounds, fewer than a VM takes in a minute."""
_PATIENCE: Final = 30.0


def measure(scratch: Path, *, rounds: int = ROUNDS, warm_up: int = WARM_UP) -> Any:
    """Milliseconds of the whole way, and of the answer to the person, by median and p95."""
    with DecisionBench(scratch) as bench, bench.console() as console:
        times = [_one(bench, console) for _ in range(warm_up + rounds)][warm_up:]
        rows = len(audit(console))
    if rows != warm_up + rounds:
        raise AssertionError(f"{rows} rows in the audit after {warm_up + rounds} approvals")
    posts, answers = zip(*times, strict=True)
    return {"post_ms": _summary(posts), "answer_ms": _summary(answers), "rounds": rounds}


def _one(bench: DecisionBench, console: ConsoleProcess) -> tuple[float, float]:
    """Approve one event; milliseconds to the POST at IMDS, and to the console's answer."""
    simulator, event_id = bench.simulators[0], bench.announce()
    event = bench.due(console, event_id)
    before = len(simulator.approvals)
    begun = time.monotonic()
    answer = decide(console, event)
    answered = time.monotonic()
    if not answer.ok:
        raise AssertionError(answer.text)
    eventually(lambda: len(simulator.approvals) > before, what="the POST", timeout=_PATIENCE)
    posted = simulator.approvals[-1].time
    simulator.end_event(event_id)
    eventually(lambda: event_id not in console.events(), what="the end", timeout=_PATIENCE)
    return 1000 * (posted - begun), 1000 * (answered - begun)


def _summary(times: tuple[float, ...]) -> dict[str, float]:
    return {
        "median": round(statistics.median(times), 1),
        "p95": round(statistics.quantiles(times, n=20, method="inclusive")[18], 1),
    }


def figures(found: Any) -> list[Figure]:
    """The way to Azure against its limit, and the answer to the person."""
    post, answer = found["post_ms"], found["answer_ms"]
    return [
        Figure(
            what="a person approves \u2192 the VM's request arrives at Azure",
            ours=f"{ms(post['median'])} median, {ms(post['p95'])} p95",
            limit=Limit(measured=post["median"], unit="ms", at_most=MAX_CHARACTERS),
            why="three writes that are synced lie in between: the audit's row with the command, "
            "the bridge's entry, and its note before it asks",
        ),
        Figure(
            what="a person approves \u2192 the console has answered",
            ours=f"{ms(answer['median'])} median, {ms(answer['p95'])} p95",
        ),
    ]
