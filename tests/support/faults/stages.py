"""A bridge that dies at a chosen step between IMDS's answer and the end of a delivery.

Each step is aimed at by what happens there for certain: a system call, an answer that was served,
an answer that is withheld. None is aimed at by guessing how long something takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from support.eventually import eventually
from support.faults.gate import GatedReceiver
from support.faults.strace import Injection
from support.faults.two_sinks import TwoSinks
from support.imds.restless import Observations, RestlessImds
from support.process.bridge import BridgeProcess

from bridge.simulator.simulator import Simulator


class Scene(TwoSinks):
    """One simulator, one file, one webhook; bridges come and go."""

    def __init__(
        self, home: Path, simulator: Simulator, receiver: GatedReceiver, *, seed: int
    ) -> None:
        super().__init__(home, simulator, receiver)
        self.draw = random.Random(seed)
        self.observed = Observations(simulator)
        self._imds = RestlessImds(simulator, seed=seed, pause=(0, 0))
        self.life: BridgeProcess

    def change(self) -> None:
        """IMDS has another document."""
        before = len(self.simulator.history)
        while len(self.simulator.history) == before:
            self._imds.step()

    def die_at(self, stage: str) -> None:
        """A life that ends there. Raises `AssertionError` where it would not end."""
        log = "ERROR" if stage in SILENT else "INFO"
        self.observed.process_starts()
        with self.bridge({"SEB_LOG__LEVEL": log}) as self.life:
            self._come_to_rest()
            STAGES[stage](self)
            self.life.wait()
        self.receiver.release()
        self.observed.process_ended()

    def live_to_the_end(self) -> int:
        """The last life: every event ends, and everything is delivered; its exit code."""
        self._imds.settle()
        self.observed.process_starts()
        with self.bridge() as self.life:
            self._come_to_rest()
            code = self.life.stop()
        self.observed.process_ended()
        return code

    def _come_to_rest(self) -> None:
        """Two looks at what stands, and everything delivered."""
        gets = self.simulator.history[-1].gets
        assert self.simulator.wait_until_served(gets=gets + 2, timeout=30)
        eventually(
            lambda: {*self.lines} == {*self.receiver.bodies} != set(),
            what="the same records at both sinks",
        )

    def under(self, rule: str, then: Callable[[], None]) -> None:
        """Do something while a rule of strace's is in force, until the bridge is dead."""
        with Injection(self.life.pid, rule):
            then()
            self.life.wait()


def _observe(scene: Scene) -> None:
    """IMDS has answered, and nothing is committed yet."""
    scene.change()
    assert scene.simulator.wait_until_served()
    scene.life.kill()


def _commit_half(scene: Scene) -> None:
    """In the middle of the pages of a transaction."""
    scene.under(f"pwrite64:signal=KILL:when={scene.draw.randint(1, 6)}", scene.change)


def _commit_unsynced(scene: Scene) -> None:
    """All is written, nothing is synced."""
    scene.under("fdatasync:signal=KILL:when=1", scene.change)


def _committed(scene: Scene) -> None:
    """It is committed, and no sink has been woken: the log line comes between."""
    scene.under("write:signal=KILL:when=1", scene.change)


def _send(scene: Scene) -> None:
    """The file is about to get its line."""
    scene.under("write:signal=KILL:when=1", scene.change)


def _acknowledge_file(scene: Scene) -> None:
    """The line is written, not synced."""
    scene.under("fsync:signal=KILL:when=1", scene.change)


def _acknowledge_webhook(scene: Scene) -> None:
    """The webhook has it all, and has not answered."""
    before = len(scene.receiver.bodies)
    scene.receiver.hold()
    scene.change()
    scene.receiver.wait_for_more(before)
    scene.life.kill()


def _mark(scene: Scene) -> None:
    """The answer is there; the progress of the sink is being written."""
    before = len(scene.receiver.bodies)
    scene.receiver.hold()
    scene.change()
    scene.receiver.wait_for_more(before)
    scene.under(f"pwrite64:signal=KILL:when={scene.draw.randint(1, 2)}", scene.receiver.release)


STAGES: Final[Mapping[str, Callable[[Scene], None]]] = {
    "observe": _observe,
    "commit, half written": _commit_half,
    "commit, not synced": _commit_unsynced,
    "committed, nobody woken": _committed,
    "send": _send,
    "acknowledge, line not synced": _acknowledge_file,
    "acknowledge, answer withheld": _acknowledge_webhook,
    "mark": _mark,
}
SILENT: Final = frozenset({"send"})
"""Where no line of the log may be what is written first."""
