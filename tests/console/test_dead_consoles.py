"""Consoles that are killed at every step of an approval, and what carries it on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import requests
from support.console.deciding import FINAL, World, audit, decide
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.postgresql import PostgreSql

Moment = float | str
"""When to kill: seconds after the request, or a step that was seen from outside."""
MOMENTS: tuple[Moment, ...] = (0.005, "answered", 0.02, "posted", 0.04, 0.08, "answered", 0.15, 0.4)
LONGEST = 0.3
_NUMBERS = count(1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One VM, one broker."""
    with World(tmp_path) as made:
        yield made


def asked_and_killed(
    world: World,
    asked: ConsoleProcess,
    kill: Callable[[], None],
    event: dict[str, Any],
    moment: Moment,
) -> None:
    """A console is asked to approve, and something is killed at a moment."""

    def ask() -> None:
        with suppress(requests.RequestException):  # it may be killed before it answers
            decide(asked, event)

    asking = threading.Thread(target=ask)
    asking.start()
    if moment == "posted":
        eventually(lambda: event["eventId"] in world.effective, what="the POST", timeout=60)
    elif moment == "answered":
        asking.join(30)
    else:
        time.sleep(float(moment))
    kill()
    asking.join(30)


def judged(world: World, console: ConsoleProcess, event_id: str) -> str:
    """Wait for the end of what was audited; nothing else may have happened. The end in a word."""
    rows = [row for row in audit(console) if row.get("eventId") == event_id]
    if not rows:
        assert event_id not in world.effective
        return "not asked"
    (row,) = rows
    eventually(
        lambda: console.get(f"commands/{row['jti']}")["state"] in FINAL,
        what=f"an end of {row}\n{console.log[-3000:]}",
        timeout=90,
    )
    eventually(lambda: len(outcomes(console, event_id)) == 1, what="one end", timeout=30)
    (outcome,) = outcomes(console, event_id)
    assert world.effective.count(event_id) == (1 if outcome == "confirmed" else 0)
    return outcome


def outcomes(console: ConsoleProcess, event_id: str) -> list[str]:
    """The ends of the decisions on an event."""
    items = console.get(f"events/{event_id}")["timeline"]
    return [item["outcome"] for item in items if item["kind"] == "decision" and item["outcome"]]


def rounds(number: int) -> Iterator[Moment]:
    """When to kill: each step of an approval in turn, then at random."""
    random = Random(number)
    for turn in range(number):
        yield MOMENTS[turn % len(MOMENTS)] if turn % 2 else random.uniform(0, LONGEST)


def killed_alone(world: World, moments: Iterator[Moment]) -> set[str]:
    """One console on SQLite, which is started again each time."""
    found = set()
    with world.console() as console:
        for moment in moments:
            event_id = world.announce()
            event = world.due(console, event_id)
            asked_and_killed(world, console, console.kill, event, moment)
            console.start()
            found.add(judged(world, console, event_id))
            world.simulators[0].end_event(event_id)
    return found


def killed_beside(world: World, moments: Iterator[Moment], what: str) -> set[str]:
    """The bridge or the broker dies, and is started again; the console goes on."""
    found = set()
    victim = world.bridges[0] if what == "bridge" else world.broker
    with world.console() as console:
        for moment in moments:
            event_id = world.announce()
            event = world.due(console, event_id)
            asked_and_killed(world, console, victim.kill, event, moment)
            victim.start()
            found.add(judged(world, console, event_id))
            world.simulators[0].end_event(event_id)
    return found


def killed_of_two(world: World, moments: Iterator[Moment], server: PostgreSql) -> set[str]:
    """Two consoles on PostgreSQL: one is asked and killed, the other carries on."""
    url, found = server.database(f"killed_{next(_NUMBERS)}"), set()
    with ExitStack() as stack:
        one = stack.enter_context(world.console("one", DATABASE=url))
        two = stack.enter_context(world.console("two", DATABASE=url))
        for moment in moments:
            event_id = world.announce()
            world.due(two, event_id)
            event = world.due(one, event_id)
            asked_and_killed(world, one, one.kill, event, moment)
            found.add(judged(world, two, event_id))
            one, two = two, one.start()
            world.simulators[0].end_event(event_id)
    return found


def test_a_killed_console_carries_on_at_its_next_start(world: World) -> None:
    """One audit row, one end, one effective POST; without the row, nothing at all."""
    assert killed_alone(world, iter([0.02, "answered"])) <= {"confirmed", "not asked"}


def test_another_console_carries_on(world: World, postgresql: PostgreSql) -> None:
    """Of two consoles one dies with an approval on its way, and the other ends it."""
    moments = iter(["answered", "posted"])
    assert killed_of_two(world, moments, postgresql) <= {"confirmed", "not asked"}


@pytest.mark.parametrize("what", ["bridge", "broker"])
def test_a_death_beside_the_console(world: World, what: str) -> None:
    """A bridge carries on what it has on disk; a broker may lose a command, which is then said."""
    ends = {"confirmed", "unanswered"} if what == "broker" else {"confirmed"}
    assert killed_beside(world, iter(["answered"]), what) <= ends


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("what", ["bridge", "broker"])
def test_a_hundred_deaths_beside_the_console(world: World, what: str) -> None:
    """At every step, again and again."""
    ends = {"confirmed", "unanswered"} if what == "broker" else {"confirmed"}
    assert killed_beside(world, rounds(100), what) <= ends


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_deaths_alone(world: World) -> None:
    """At every step, again and again."""
    assert killed_alone(world, rounds(100)) <= {"confirmed", "not asked"}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_deaths_of_one_of_two(world: World, postgresql: PostgreSql) -> None:
    """At every step, again and again, with another console at work."""
    assert killed_of_two(world, rounds(100), postgresql) <= {"confirmed", "not asked"}
