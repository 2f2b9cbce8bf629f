"""A small disk that fills and is freed: what was committed arrives, the rest is found later."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.eventually import eventually
from support.faults.bad_disk import TRY_LATER
from support.faults.gated_receiver import GatedReceiver
from support.faults.mount import fill, small_disk
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.faults.two_sinks import TwoSinks
from support.process.bridge import BridgeProcess

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


class SmallDisk(TwoSinks):
    """A bridge whose store is on a disk that fills; its sinks are elsewhere."""

    def __init__(self, home: Path, disk: Path, simulator: Simulator, sink: GatedReceiver) -> None:
        super().__init__(home, simulator, sink, disk=disk)
        self.disk = disk
        self.documents: list[Mapping[str, Any]] = []
        """What must have been committed."""

    def killed_with_a_backlog(self) -> None:
        """A bridge that sees some events, delivers none of them to the webhook, and is killed."""
        self.receiver.hold()
        with self.bridge() as bridge:
            bridge.wait_for_log("started")
            for _ in range(5):
                self.change()
            bridge.kill()
        self.receiver.release()

    def live_well(self) -> None:
        """A life with room on the disk: what is announced arrives."""
        with self.bridge() as bridge:
            bridge.wait_for_log("started")
            self.change_and_hear()
            assert bridge.stop() == 0

    def change(self) -> str:
        """One more event, looked at twice."""
        event = self.simulator.announce(SimulatedEvent(description="x" * 1000))
        assert self.simulator.wait_until_served(gets=2)
        return event.event_id

    def change_and_hear(self) -> None:
        """One more event, which arrives."""
        event_id = self.change().encode()
        eventually(
            lambda: all(any(event_id in body for body in got) for got in self.received.values()),
            what="the record",
        )
        self.documents.append(self.simulator.history[-1].json())

    def fill(self, bridge: BridgeProcess) -> Path:
        """Fill the disk until the bridge says that it cannot go on; what fills it."""
        filler = fill(self.disk)
        before = len(bridge.logs("store_trouble"))
        for _ in range(2000):
            self.change()
            fill(self.disk)  # what the ballast gave, too
            if len(bridge.logs("store_trouble")) > before:
                return filler
        raise AssertionError("the disk never was full")

    def free(self, filler: Path) -> None:
        """Make room, and see that what stands now arrives."""
        filler.unlink()
        self.change_and_hear()


def evidence_of(disk: SmallDisk, case: str, rounds: int) -> Evidence:
    """What the oracle wants to know."""
    return Evidence(
        case=case,
        rounds=rounds,
        received=disk.received,
        documents=disk.documents,
        standing=disk.simulator.history[-1].json(),
        outbox=outbox_of(disk.home, disk.env),
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk, a simulator and two sinks; nothing runs yet."""
    with (
        small_disk(tmp_path / "disk", megabytes=6) as mounted,
        Simulator() as simulator,
        GatedReceiver() as sink,
    ):
        yield SmallDisk(tmp_path, mounted, simulator, sink)


def endure(disk: SmallDisk, rounds: int) -> Figures:
    """So often full and freed while the bridge runs."""
    with disk.bridge() as bridge:
        for _ in range(rounds):
            disk.change_and_hear()
            disk.free(disk.fill(bridge))
        for event in disk.simulator.history[-1].json()["Events"]:
            disk.simulator.end_event(event["EventId"])
        assert disk.simulator.wait_until_served(gets=2)
        assert bridge.stop() == 0
        assert "Traceback" not in bridge.errors
    return judge(evidence_of(disk, "a disk that fills and is freed", rounds))


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.faults)])
def test_a_disk_that_fills_and_is_freed(
    disk: SmallDisk, tell: Callable[[Figures], None], rounds: int
) -> None:
    """While it is full nothing new is told; once there is room, what stands is, each time."""
    tell(endure(disk, rounds))


def test_a_start_on_a_full_disk(disk: SmallDisk, tell: Callable[[Figures], None]) -> None:
    """A backlog is delivered from a disk that takes nothing, or the start says to try later."""
    disk.killed_with_a_backlog()
    filler = fill(disk.disk)
    assert shutil.disk_usage(disk.disk).free == 0
    with disk.bridge() as bridge:
        try:
            eventually(
                lambda: len(disk.receiver.bodies) > 6 or bridge.poll() is not None, what="an end"
            )
        finally:
            filler.unlink()
        code = bridge.stop() if bridge.poll() is None else bridge.wait()
    assert code in (0, TRY_LATER)
    assert "Traceback" not in bridge.errors
    disk.live_well()
    tell(judge(evidence_of(disk, "a start on a full disk", 1), more=f"exit code {code}"))


def end_of(bridge: BridgeProcess, simulator: Simulator) -> int:
    """The exit code of a bridge that ends by itself, or is stopped once it looks at IMDS."""
    gets = simulator.gets
    eventually(
        lambda: simulator.gets > gets + 2 or bridge.poll() is not None, what="a life, or an end"
    )
    return bridge.stop() if bridge.poll() is None else bridge.wait()


@pytest.mark.faults
def test_a_damaged_store_on_a_full_disk(disk: SmallDisk, tell: Callable[[Figures], None]) -> None:
    """There is no room to begin anew; once there is, the loss is told and the rest delivered."""
    disk.killed_with_a_backlog()
    # A log that is cut off leaves a whole store that is older; without their heads both are lost.
    for part in ("seb.db", "seb.db-wal"):
        damaged = disk.state / part
        damaged.write_bytes(b"?" * 100 + damaged.read_bytes()[100:])
    filler = fill(disk.disk)
    ends = []
    for _ in range(3):
        with disk.bridge() as bridge:
            fill(disk.disk)
            ends.append(end_of(bridge, disk.simulator))
            assert "Traceback" not in bridge.errors
    assert set(ends) <= {0, TRY_LATER}
    filler.unlink()
    disk.live_well()
    evidence = evidence_of(disk, "a damaged store on a full disk", len(ends))
    tell(judge(replace(evidence, resets=1), more=f"exit codes {ends}"))


def test_a_first_start_on_a_full_disk(tmp_path: Path) -> None:
    """There is no room for a store: it says so, and that it is worth another try."""
    with small_disk(tmp_path / "disk", megabytes=1) as mounted:
        fill(mounted)
        env = {"SEB_STATE_DIR": str(mounted)}
        with BridgeProcess("run", env=env, home=tmp_path) as bridge:
            assert bridge.wait() == TRY_LATER
        assert bridge.errors.startswith("seb: SEB_STATE_DIR: the disk under ")
        assert len(bridge.errors.splitlines()) == 1
