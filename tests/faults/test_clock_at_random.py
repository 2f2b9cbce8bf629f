"""The wall clock is set at random, over lives that end by kill -9 now and then: nothing is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.eventually import eventually
from support.faults.clock import (
    GROWTH_KIB,
    HOUR,
    YEARS,
    WrongClock,
    polls_again,
    resident,
    variables,
)
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.imds.restless import Observations, RestlessImds
from support.sinks.five import FiveSinks

from bridge.simulator.simulator import Simulator

SINKS = ("file", "webhook", "mqtt")
Tell = Callable[[Figures], None]


class Restless:
    """A clock that nobody leaves alone, under bridges that are killed now and then."""

    def __init__(self, home: Path, *, jumps: int, seed: int) -> None:
        self._home = home
        self._draw = random.Random(seed)
        self.jumps = jumps
        self.grown = 0
        self.waited = 0.0
        self.kills = 0
        with FiveSinks(home) as sinks, Simulator() as simulator, WrongClock(home) as clock:
            wanted = {n: v for n, v in sinks.env.items() if "EVENTHUB" not in n}
            self.env = variables(simulator, home, **wanted)
            self.observed = Observations(simulator)
            with RestlessImds(simulator, seed=seed, pause=(0.05, 0.4)) as imds:
                while jumps > 0:
                    jumps -= self._life(simulator, clock, min(jumps, self._draw.randint(3, 25)))
                imds.settle()
            clock.set(0.0)
            self._last_life(simulator, clock, sinks)
            written = len(set(sinks.received()["file"]))
            eventually(
                lambda: all(len(set(sinks.received()[name])) >= written for name in SINKS),
                what="everything, at every sink",
            )
            everything = sinks.received()
            self.standing = simulator.history[-1].json()
        self.received = {name: everything[name] for name in SINKS}

    def _life(self, simulator: Simulator, clock: WrongClock, jumps: int) -> int:
        self.observed.process_starts()
        with clock.bridge(self.env, self._home) as bridge:
            bridge.wait_for_log("started")
            before = resident(bridge.pid)
            for _ in range(jumps):
                clock.set(self._wrong_by(clock))
                threading.Event().wait(self._draw.uniform(0.0, 0.4))  # when is the experiment
            self.waited = max(self.waited, polls_again(simulator))
            self.grown = max(self.grown, resident(bridge.pid) - before)
            if self._draw.random() < 0.7:
                self.kills += 1
                bridge.kill()
            else:
                assert bridge.stop() == 0
        self.observed.process_ended()
        return jumps

    def _wrong_by(self, clock: WrongClock) -> float:
        """A new error of the clock: a step, a leap, another date, or none."""
        draw = self._draw
        wrong = draw.choice(
            [
                clock.wrong_by + draw.uniform(-3, 3),
                clock.wrong_by + draw.choice([-0.9, 0.9, -90, 90]),
                draw.choice([HOUR, -HOUR]),
                draw.choice([YEARS, -YEARS]),
                draw.uniform(-YEARS, YEARS),
                0.0,
            ]
        )
        return min(max(wrong, -YEARS), YEARS)

    def _last_life(self, simulator: Simulator, clock: WrongClock, sinks: FiveSinks) -> None:
        self.observed.process_starts()
        with clock.bridge(self.env, self._home) as bridge:
            bridge.wait_for_log("started")
            assert simulator.wait_until_served(gets=2)
            assert bridge.stop() == 0
        self.observed.process_ended()

    @property
    def evidence(self) -> Evidence:
        """What it came to."""
        return Evidence(
            case="clock: set at random, kill -9 now and then",
            rounds=self.jumps,
            received=self.received,
            documents=self.observed.documents,
            standing=self.standing,
            outbox=outbox_of(self._home, self.env),
        )


def try_jumps(home: Path, tell: Tell, *, jumps: int, seed: int) -> None:
    """Set the clock so often, and judge."""
    restless = Restless(home, jumps=jumps, seed=seed)
    assert restless.grown < GROWTH_KIB
    tell(
        judge(
            restless.evidence,
            more=f"kills {restless.kills}, next poll after {restless.waited:.2f} s at most, "
            f"{restless.grown / 1024:.1f} MiB more",
        )
    )


@pytest.mark.faults
def test_a_clock_that_nobody_leaves_alone(tmp_path: Path, tell: Tell) -> None:
    """A hundred jumps of any size, over several lives."""
    try_jumps(tmp_path, tell, jumps=100, seed=9)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_clock_that_is_set_two_thousand_times(tmp_path: Path, tell: Tell) -> None:
    """The same for a quarter of an hour."""
    try_jumps(tmp_path, tell, jumps=2000, seed=99)
