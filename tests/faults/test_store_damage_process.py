"""A bridge that finds its store in a bad state: it begins, or says in a sentence why not."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from support.eventually import eventually
from support.faults.bad_disk import CONFIGURATION
from support.faults.gated_receiver import GatedReceiver
from support.faults.mount import read_only_view
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.faults.two_sinks import TwoSinks
from support.imds.restless_imds import RestlessImds
from support.process.bridge import BridgeProcess

from bridge.simulator.simulator import Simulator

RESET = "seb.bridge.store-reset.v1"
BACKLOG = 6


class Widow(TwoSinks):
    """The store of a bridge that was killed with a backlog; and the next bridge."""

    def __init__(self, home: Path, simulator: Simulator, sink: GatedReceiver) -> None:
        super().__init__(home, simulator, sink)
        self._imds = RestlessImds(simulator, seed=1, pause=(0, 0))
        sink.hold()
        with self.bridge() as bridge:
            for _ in range(BACKLOG):
                self._imds.step()
                assert simulator.wait_until_served(gets=2)
            eventually(lambda: len(self.lines) > BACKLOG, what="the records")
            bridge.kill()
        sink.release()

    def live_on(self) -> None:
        """A bridge comes to rest, sees one more change, and every event's end."""
        with self.bridge() as bridge:
            bridge.wait_for_log("started")
            self._imds.step()
            assert self.simulator.wait_until_served(gets=2)
            self._imds.settle()
            assert self.simulator.wait_until_served(gets=2)
            assert bridge.stop() == 0
            assert "Traceback" not in bridge.errors

    def evidence(self, case: str) -> Evidence:
        """What the oracle wants to know; a reset is a reset only where it was told."""
        received = self.received
        fields = {json.loads(body)["id"] for body in received["file"] if RESET.encode() in body}
        return Evidence(
            case=case,
            received=received,
            standing=self.simulator.history[-1].json(),
            outbox=outbox_of(self.home, self.env),
            resets=len(fields),
        )


def cut(state: Path, *, part: float = 0.0, log: bool = True) -> None:
    """So much of the file is left, and its log if it is."""
    data = (state / "seb.db").read_bytes()
    (state / "seb.db").write_bytes(data[: int(len(data) * part)])
    if not log:
        (state / "seb.db-wal").unlink()


def remove(state: Path) -> None:
    """Nothing is left."""
    for path in state.glob("seb.db*"):
        path.unlink()


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "of zero length": partial(cut, log=False),
    "of zero length, beside its log": cut,
    "half": partial(cut, part=0.5),
    "no store at all": lambda state: (state / "seb.db").write_bytes(b"no store at all\n" * 4096),
    "gone": remove,
}
ALWAYS = ("of zero length", "half")
"""Those that the quickest run tries."""


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=[] if what in ALWAYS else [pytest.mark.faults]) for what in DAMAGES],
)
def test_a_store_that_is_lost(tmp_path: Path, what: str, tell: Callable[[Figures], None]) -> None:
    """A new one begins, with a new stream, and every sink is told so."""
    with Simulator() as simulator, GatedReceiver() as sink:
        widow = Widow(tmp_path, simulator, sink)
        DAMAGES[what](widow.state)
        widow.live_on()
        evidence = widow.evidence(f"a store {what}")
        assert evidence.resets == 1
        tell(judge(evidence))


def test_a_store_that_cannot_be_written(tmp_path: Path, tell: Callable[[Figures], None]) -> None:
    """It is refused in a sentence; once it can be written, nothing is missing."""
    with Simulator() as simulator, GatedReceiver() as sink:
        widow = Widow(tmp_path, simulator, sink)
        with read_only_view(tmp_path / "view", of=widow.state) as view:
            refused(widow.bridge({"SEB_STATE_DIR": str(view)}))
        widow.live_on()
        evidence = widow.evidence("a store that cannot be written")
        assert evidence.resets == 0
        tell(judge(evidence))


def refused(bridge: BridgeProcess) -> None:
    """It ends with the code for a wrong setting, and one line that names it."""
    with bridge:
        assert bridge.wait() == CONFIGURATION
    assert bridge.errors.startswith("seb: SEB_STATE_DIR: ")
    assert len(bridge.errors.splitlines()) == 1
