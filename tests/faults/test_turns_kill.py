"""Two consoles killed and frozen at random: the VMs themselves say that the budget held."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from support.console.preparing_cluster import PreparingCluster
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.faults.sizes import sizes
from support.postgresql import PostgreSql

pytestmark = pytest.mark.skipif(os.name != "posix", reason="freezes processes")

Tell = Callable[[str], None]
_NUMBERS = count(1)
_AT_ONCE = 1
_NOTICE_MINUTES = 60
"""So long that no VM prepares at its own deadline, for which no console asks."""


class Maintenance:
    """Azure, which has an event for each VM of a cluster, and the next one after its end."""

    def __init__(self, cluster: PreparingCluster) -> None:
        self._cluster = cluster
        self._events: dict[int, str] = {}
        self.ended = 0
        """Events that were approved, have started and are over."""

    def go_on(self) -> None:
        """Announce an event where there is none; end those that have started."""
        for number, simulator in enumerate(self._cluster.simulators):
            event_id = self._events.get(number)
            if event_id is None:
                self._events[number] = self._cluster.announce_for(number, minutes=_NOTICE_MINUTES)
            elif event_id in self._cluster.approved(number) and self._has_begun(number):
                simulator.end_event(event_id)
                del self._events[number]
                self.ended += 1

    def _has_begun(self, number: int) -> bool:
        """Whether the VM's program was told of the newest start."""
        starts = [what for _, what, word, _ in self._cluster.runs(number) if word == "done"]
        return starts[-1:] == ["started"]


def check(cluster: PreparingCluster) -> None:
    """What must hold at every moment, as the VMs tell it."""
    assert cluster.most_away() <= _AT_ONCE
    for number, simulator in enumerate(cluster.simulators):
        runs = cluster.runs(number)
        prepared = [mark for _, what, word, mark in runs if (what, word) == ("scheduled", "begun")]
        assert len(prepared) == len(set(prepared)), "a preparation ran twice for one state"
        ready = sum(1 for _, what, word, _ in runs if (what, word) == ("scheduled", "done"))
        started = sum(len(post.started) for post in simulator.approvals)
        assert started <= ready, "an approval went out before the VM was prepared"


@sizes("seconds", None, 60, 600)
def test_two_consoles_keep_the_budget(
    tmp_path: Path, postgresql: PostgreSql, tell: Tell, seconds: int
) -> None:
    """Whatever is killed or frozen, no more of the group is away than it allows, and it goes on."""
    url = postgresql.database(f"turns_{next(_NUMBERS)}")
    settings = {name: {"DATABASE": url} for name in ("one", "two")}
    strike_for(seconds, tmp_path, settings, tell)


@sizes("seconds", None, 60, 600)
def test_one_console_keeps_the_budget(tmp_path: Path, tell: Tell, seconds: int) -> None:
    """The same with SQLite, which one console alone can open."""
    strike_for(seconds, tmp_path, {"one": {}}, tell)


def strike_for(
    seconds: int, directory: Path, settings: Mapping[str, Mapping[str, str]], tell: Tell
) -> None:
    """Kill and freeze some consoles for so long; `settings` are those of each, by its name."""
    draw = random.Random(seconds)
    faults = 0
    with PreparingCluster(directory, vms=3) as cluster, ExitStack() as stack:
        consoles = [
            stack.enter_context(cluster.console(name, **each)) for name, each in settings.items()
        ]
        maintenance = Maintenance(cluster)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            strike(draw, draw.choice(consoles), maintenance)
            faults += 1
            check(cluster)
        before = maintenance.ended

        def goes_on() -> bool:
            maintenance.go_on()
            return maintenance.ended > before

        eventually(goes_on, what="the next turn", timeout=120)
        check(cluster)
        names = " and ".join(settings)
        tell(f"turns: {faults} faults ({names}), {maintenance.ended} events, one at a time")


def strike(draw: random.Random, console: ConsoleProcess, maintenance: Maintenance) -> None:
    """Kill a console and start it again, or freeze it for some seconds; Azure goes on meanwhile."""
    pause(draw.uniform(0, 2), maintenance)
    if draw.random() < 0.5:
        console.kill()
        pause(draw.uniform(0, 2), maintenance)
        console.start()
        return
    assert console.process is not None
    console.process.send_signal(signal.SIGSTOP)
    try:
        pause(draw.uniform(0.5, 6), maintenance)
    finally:
        console.process.send_signal(signal.SIGCONT)


def pause(seconds: float, maintenance: Maintenance) -> None:
    """Let Azure go on for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        maintenance.go_on()
        time.sleep(0.1)
