"""kill -9 at random moments: nothing lost, no two ids for one fact, order per sink kept."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.faults.sizes import sizes
from support.imds.restless_imds import Observations, RestlessImds
from support.process.bridge import BridgeProcess, fast
from support.sinks.five_sinks import FiveSinks

from bridge.simulator.simulator import Simulator

SINKS = ("file", "webhook", "mqtt")
FROM_START = (0.05, 1.0)
"""Seconds from the start of a process to its death: from before it has read its settings."""
FROM_POLL = (0.0, 0.7)
"""Seconds from its first look at IMDS to its death, in every other life."""


class Killed:
    """A bridge that was killed so many times, and then ran to a good end."""

    def __init__(self, home: Path, *, rounds: int, seed: int) -> None:
        self._home = home
        draw = random.Random(seed)
        with FiveSinks(home) as sinks, Simulator() as simulator:
            self.env = self._environment(sinks, simulator)
            self.observed = Observations(simulator)
            with RestlessImds(simulator, seed=seed, pause=(0.05, 0.5)) as imds:
                for number in range(rounds):
                    self._life(simulator, draw, begins=number % 2 == 0)
                imds.settle()
            self.code = self._last_life(simulator)
            everything = sinks.received()
        self.evidence = Evidence(
            case="kill -9 at random moments",
            rounds=rounds,
            received={name: everything[name] for name in SINKS},
            documents=self.observed.documents,
            standing=simulator.history[-1].json(),
            outbox=outbox_of(home, self.env),
        )

    def _environment(self, sinks: FiveSinks, simulator: Simulator) -> dict[str, str]:
        wanted = tuple(f"SEB_SINK__{name.upper()}__" for name in SINKS)
        return {
            **{name: value for name, value in sinks.env.items() if name.startswith(wanted)},
            **fast(simulator.url, self._home),
        }

    def _life(self, simulator: Simulator, draw: random.Random, *, begins: bool) -> None:
        self.observed.process_starts()
        gets = simulator.gets
        with BridgeProcess("run", env=self.env, home=self._home) as bridge:
            if not begins:
                assert simulator.wait_for_gets(gets + 1, timeout=30)
            # The moment of death is the experiment.
            threading.Event().wait(draw.uniform(*(FROM_START if begins else FROM_POLL)))
            bridge.kill()
        self.observed.process_ended()

    def _last_life(self, simulator: Simulator) -> int:
        self.observed.process_starts()
        with BridgeProcess("run", env=self.env, home=self._home) as bridge:
            bridge.wait_for_log("started")
            assert simulator.wait_until_served(gets=2)
            code = bridge.stop()
        self.observed.process_ended()
        return code


def try_rounds(home: Path, rounds: int, seed: int, tell: Callable[[Figures], None]) -> None:
    """Kill, look, and say what was found."""
    killed = Killed(home, rounds=rounds, seed=seed)
    assert killed.code == 0
    facts = len(killed.observed.facts())
    tell(judge(killed.evidence, more=f"facts read for certain {facts}"))


@sizes("rounds", 8, 50, 500)
def test_kill_at_random_moments(
    tmp_path: Path, tell: Callable[[Figures], None], rounds: int
) -> None:
    """So many lives that end in kill -9, on one store, and another one that ends well."""
    try_rounds(tmp_path, rounds, seed=rounds, tell=tell)
