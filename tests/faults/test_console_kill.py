"""kill -9 of console, bridge and broker at each step of an approval that a person gives.

Each decision has one row in the audit and one end, no event gets a second effective POST, and
nothing is signed without its row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, Protocol

import pytest
from support.console import killable_console
from support.console.approval_oracle import NOT_ASKED, ApprovalOracle
from support.console.killable_console import Death, KillableConsole, KillableHttpsConsole, Step
from support.console.process import ConsoleProcess
from support.faults import strace
from support.faults.sizes import sizes
from support.postgresql import PostgreSql

Tell = Callable[[str], None]
SHORTEST: Mapping[str, Step] = {
    each: killable_console.SQLITE[each]
    for each in ("signed, not sent", "confirmed, receipt on its way")
}
"""What needs no strace."""
AGAIN = 0.3
_NUMBERS = count(1)


def needing_strace(steps: Mapping[str, Step]) -> Mapping[str, Step]:
    """These steps; skips the test where there is no strace."""
    why_not = strace.why_not()
    if why_not is not None:
        pytest.skip(why_not)
    return steps


class Victim(Protocol):
    """What is killed beside the console."""

    def kill(self) -> None:
        """End it without a word."""

    def start(self) -> object:
        """Start it again."""


def in_turn(steps: Mapping[str, Step], rounds: int) -> Iterator[tuple[str, Step]]:
    """One step after the other."""
    return islice(cycle(steps.items()), rounds)


def announced(scene: KillableConsole, *consoles: ConsoleProcess) -> dict[str, Any]:
    """An event that waits for a decision at each console, as the first one shows it."""
    event_id = scene.announce()
    seen = [scene.due(each, event_id) for each in consoles]
    return seen[0]


def over(scene: KillableConsole, event: Mapping[str, Any]) -> None:
    """Nobody needs the event any more."""
    for simulator in scene.simulators:
        simulator.end_event(event["eventId"])


def killed_again(scene: KillableConsole, console: ConsoleProcess) -> None:
    """In some rounds, what is to carry the decision on dies too, and is started again."""
    if scene.draw.random() < AGAIN:
        time.sleep(scene.draw.uniform(0, 0.5))
        console.kill()
        console.start()


@sizes("rounds", 2, 12, 100)
def test_a_console_on_sqlite(tmp_path: Path, tell: Tell, rounds: int) -> None:
    """It carries on at its next start."""
    steps = SHORTEST if rounds == len(SHORTEST) else needing_strace(killable_console.SQLITE)
    with KillableConsole(tmp_path, vms=1, seed=rounds) as scene, scene.console() as console:
        oracle = ApprovalOracle(scene=scene)
        for name, step in in_turn(steps, rounds):
            event = announced(scene, console)
            step(Death(scene=scene, console=console, event=event, kill=console.kill))
            killed_again(scene, console.start())
            oracle.enter(console, event["eventId"], name)
            over(scene, event)
        tell(oracle.judge(console, "kill -9 of a console", may_end={"confirmed", NOT_ASKED}))


@sizes("rounds", None, 12, 100)
def test_one_of_two_consoles_on_postgresql(
    tmp_path: Path, postgresql: PostgreSql, tell: Tell, rounds: int
) -> None:
    """The other one carries on, before the first one is there again."""
    url = postgresql.database(f"killed_{next(_NUMBERS)}")
    with KillableConsole(tmp_path, vms=1, seed=rounds) as scene, ExitStack() as stack:
        one, two = [
            stack.enter_context(scene.console(name, DATABASE=scene.database(name, url)))
            for name in ("one", "two")
        ]
        oracle = ApprovalOracle(scene=scene)
        for name, step in in_turn(needing_strace(killable_console.POSTGRESQL), rounds):
            event = announced(scene, one, two)
            step(Death(scene=scene, console=one, event=event, kill=one.kill, others=[two]))
            dead, alive = (one, two) if one.process is None else (two, one)
            killed_again(scene, alive)
            oracle.enter(alive, event["eventId"], name)
            over(scene, event)
            one, two = alive, dead.start()
        figures = "kill -9 of one of two consoles, PostgreSQL"
        tell(oracle.judge(one, figures, may_end={"confirmed", NOT_ASKED}))


@sizes("rounds", None, 7, 100)
def test_the_bridge(tmp_path: Path, tell: Tell, rounds: int) -> None:
    """It carries on what it has on disk."""
    with KillableConsole(tmp_path, vms=1, seed=rounds) as scene, scene.console() as console:
        oracle = ApprovalOracle(scene=scene)
        beside(oracle, console, scene.bridges[0], in_turn(killable_console.BRIDGE, rounds))
        tell(oracle.judge(console, "kill -9 of the bridge that is asked", may_end={"confirmed"}))


@sizes("rounds", None, 9, 100)
def test_the_broker(tmp_path: Path, tell: Tell, rounds: int) -> None:
    """It may lose what it has taken; another VM is asked then, or it is said."""
    with KillableConsole(tmp_path, vms=2, seed=rounds) as scene, scene.console() as console:
        oracle = ApprovalOracle(scene=scene)
        beside(oracle, console, scene.broker, in_turn(killable_console.BROKER, rounds))
        tell(
            oracle.judge(
                console,
                "kill -9 of the broker",
                # Rejected: the VM had it before, and its receipts went with the broker.
                may_end={"confirmed", "unanswered", "overtaken", "rejected"},
            )
        )


@sizes("rounds", None, 12, 100)
def test_over_https_alone(tmp_path: Path, tell: Tell, rounds: int) -> None:
    """The console and the bridge in turn, which have no broker between them."""
    console_steps = needing_strace(killable_console.HTTPS_CONSOLE).items()
    steps = [(f"console: {name}", step) for name, step in console_steps]
    steps += [(f"bridge: {name}", step) for name, step in killable_console.HTTPS_BRIDGE.items()]
    with KillableHttpsConsole(tmp_path, seed=rounds) as scene, scene.console() as console:
        oracle = ApprovalOracle(scene=scene)
        with scene.bridge(console) as bridge:
            for name, step in in_turn(dict(steps), rounds):
                event = scene.announced(console)
                victim: Victim = bridge if name.startswith("bridge") else console
                step(Death(scene=scene, console=console, event=event, kill=victim.kill))
                victim.start()
                oracle.enter(console, event["eventId"], name)
                scene.simulator.end_event(event["eventId"])
        figures = "kill -9 of console and bridge, HTTPS alone"
        tell(oracle.judge(console, figures, may_end={"confirmed", NOT_ASKED}))


def beside(
    oracle: ApprovalOracle,
    console: ConsoleProcess,
    victim: Victim,
    steps: Iterator[tuple[str, Step]],
) -> None:
    """Something dies while a console goes on."""
    scene = oracle.scene
    assert isinstance(scene, KillableConsole)
    for name, step in steps:
        event = announced(scene, console)
        step(Death(scene=scene, console=console, event=event, kill=victim.kill))
        victim.start()
        oracle.enter(console, event["eventId"], name)
        over(scene, event)
