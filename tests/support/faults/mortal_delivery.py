"""A bridge that dies at a chosen step between IMDS's answer and the end of a delivery.

Each step is aimed at by what happens there for certain; none by guessing how long something takes.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.eventually import eventually
from support.faults.gated_receiver import GatedReceiver
from support.faults.strace import Injection
from support.faults.two_sinks import TwoSinks
from support.imds.restless_imds import Observations, RestlessImds
from support.process.bridge import BridgeProcess

from bridge.simulator.simulator import Simulator


class Mortal(ABC):
    """Bridges that come and go at one simulator; each but the last one dies where it is told to."""

    life: BridgeProcess

    def __init__(self, simulator: Simulator, *, seed: int) -> None:
        self.draw = random.Random(seed)
        self.observed = Observations(simulator)

    @abstractmethod
    def bridge(self, more: Mapping[str, str] | None = None) -> BridgeProcess:
        """`seb run`, not started."""

    @abstractmethod
    def come_to_rest(self) -> None:
        """Two looks at what stands, and everything delivered."""

    @contextmanager
    def living(self, more: Mapping[str, str] | None = None) -> Iterator[None]:
        """One life, from its rest on; the block ends it."""
        self.observed.process_starts()
        with self.bridge(more) as self.life:
            self.come_to_rest()
            yield
            self.life.wait()
        self.observed.process_ended()

    def live_to_the_end(self) -> int:
        """The last life: everything is delivered, and has its end; its exit code."""
        with self.living():
            return self.life.stop()

    def under(self, rule: str, then: Callable[[], None]) -> None:
        """Do something while a rule of strace's is in force, until the bridge is dead."""
        with Injection(self.life.pid, rule):
            then()
            self.life.wait()


class MortalDelivery(TwoSinks, Mortal):
    """One simulator, one file, one webhook."""

    def __init__(
        self, home: Path, simulator: Simulator, receiver: GatedReceiver, *, seed: int
    ) -> None:
        TwoSinks.__init__(self, home, simulator, receiver)
        Mortal.__init__(self, simulator, seed=seed)
        self._imds = RestlessImds(simulator, seed=seed, pause=(0, 0))

    def change(self) -> None:
        """IMDS has another document."""
        before = len(self.simulator.history)
        while len(self.simulator.history) == before:
            self._imds.step()

    def die_at(self, stage: str) -> None:
        """A life that ends there. Raises `AssertionError` where it would not end."""
        with self.living({"SEB_LOG__LEVEL": "ERROR" if stage in SILENT else "INFO"}):
            STAGES[stage](self)
        self.receiver.release()

    def live_to_the_end(self) -> int:
        """Every event ends too."""
        self._imds.settle()
        return super().live_to_the_end()

    def come_to_rest(self) -> None:
        gets = self.simulator.history[-1].gets
        assert self.simulator.wait_until_served(gets=gets + 2, timeout=30)
        eventually(
            lambda: {*self.lines} == {*self.receiver.bodies} != set(),
            what="the same records at both sinks",
        )

    def withhold(self) -> None:
        """A change whose record the webhook has, and does not answer."""
        before = len(self.receiver.bodies)
        self.receiver.hold()
        self.change()
        self.receiver.wait_for_more(before)


Stage = Callable[[MortalDelivery], None]


def _at_call(call: str, *, last: int = 1) -> Stage:
    """As a thread enters its first such call after a change, or one of so many."""

    def die(scene: MortalDelivery) -> None:
        scene.under(f"{call}:signal=KILL:when={scene.draw.randint(1, last)}", scene.change)

    return die


def _observe(scene: MortalDelivery) -> None:
    """IMDS has answered, and nothing is committed yet."""
    scene.change()
    assert scene.simulator.wait_until_served()
    scene.life.kill()


def _acknowledge(scene: MortalDelivery) -> None:
    """The webhook has it all, and has not answered."""
    scene.withhold()
    scene.life.kill()


def _mark(scene: MortalDelivery) -> None:
    """The answer is there; the progress of the sink is being written."""
    scene.withhold()
    scene.under(f"pwrite64:signal=KILL:when={scene.draw.randint(1, 2)}", scene.receiver.release)


STAGES: Final[Mapping[str, Stage]] = {
    "observe": _observe,
    "commit, half written": _at_call("pwrite64", last=6),
    "commit, not synced": _at_call("fdatasync"),
    "committed, nobody woken": _at_call("write"),  # the log line comes between
    "send": _at_call("write"),  # the file is about to get its line
    "acknowledge, line not synced": _at_call("fsync"),
    "acknowledge, answer withheld": _acknowledge,
    "mark": _mark,
}
SILENT: Final = frozenset({"send"})
"""Where no line of the log may be what is written first."""
