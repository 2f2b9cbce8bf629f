"""A disk that fails at every nth call: nothing is lost, and nothing is sent that is not kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.faults import strace as fault_strace
from support.faults.bad_disk import TRY_LATER, BadDisk
from support.faults.gated_receiver import GatedReceiver
from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of
from support.faults.strace import under
from support.process.bridge import SEB, BridgeProcess

from bridge.simulator.simulator import Simulator

pytestmark = pytest.mark.skipif(
    fault_strace.why_not() is not None, reason=str(fault_strace.why_not())
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCallFault:
    """What fails, for how many looks at IMDS in a row it may keep a commit from going in, and
    every how many calls it is to be tried.
    """

    rule: str
    looks: int
    every: Sequence[int]


FAULTS = {
    # One thread of a few polls, and one sync is a commit: these in turn may each be at theirs.
    "sync of the store": DiskCallFault(rule="fdatasync:error=EIO", looks=5, every=(2, 3, 7)),
    # A dozen writes are a commit.
    "write of the store": DiskCallFault(rule="pwrite64:error=ENOSPC", looks=12, every=(5, 19, 41)),
    # Neither is a matter of the store.
    "write of file and log": DiskCallFault(rule="write:error=ENOSPC", looks=2, every=(2, 3, 7)),
    "sync of the file": DiskCallFault(rule="fsync:error=EIO", looks=2, every=(2, 3, 7)),
}
CASES = [
    *(
        (fault, FAULTS[fault].every[1], 3)
        for fault in ("sync of the store", "write of file and log")
    ),
    *(
        pytest.param(name, every, 5, marks=pytest.mark.faults)
        for name, fault in FAULTS.items()
        for every in fault.every
    ),
    *(
        pytest.param(name, every, 20, marks=[pytest.mark.slow, pytest.mark.timeout(300)])
        for name in FAULTS
        for every in range(1, 30)
    ),
]


def suffer(home: Path, fault: str, every: int, *, seconds: float) -> Figures:
    """So long with every nth call failing, then a life without faults, and the verdict."""
    with Simulator() as simulator, GatedReceiver() as receiver:
        disk = BadDisk(home, simulator, receiver)
        disk.suffer(f"{FAULTS[fault].rule}:when={every}+{every}", seconds=seconds, seed=every)
        assert disk.recover() == 0
        for said in disk.said:
            assert "Traceback" not in said, said
        assert set(disk.ends) <= {TRY_LATER}
        committed, received = disk.committed(), disk.received
        for sink, bodies in received.items():
            assert set(bodies) <= set(committed), f"{sink} got what was not committed"
        evidence = Evidence(
            case=f"{fault}, every {every}",
            rounds=disk.lives,
            received=received,
            documents=certain(simulator, looks=FAULTS[fault].looks),
            standing=simulator.history[-1].json(),
            committed=committed,
            outbox=outbox_of(home, disk.env),
        )
        return judge(evidence, more=f"failed starts {len(disk.ends)}")


@pytest.mark.parametrize(("fault", "every", "seconds"), CASES)
def test_every_nth_call_fails(
    tmp_path: Path, tell: Callable[[Figures], None], fault: str, every: int, seconds: float
) -> None:
    """Whatever the disk refuses is tried again, and nobody hears of what it refused."""
    tell(suffer(tmp_path, fault, every, seconds=seconds))


@pytest.mark.parametrize(
    "rule", ["fdatasync:error=EIO", "pwrite64:error=ENOSPC", "fsync:error=EIO"]
)
def test_a_disk_that_takes_nothing(tmp_path: Path, rule: str) -> None:
    """It is told what is wrong, in a sentence, with an exit code that means: try again later."""
    with Simulator() as simulator, GatedReceiver() as receiver:
        disk = BadDisk(tmp_path, simulator, receiver)
        prefix = [*under(rule), *SEB]
        with BridgeProcess("run", env=disk.env, home=tmp_path, prefix=prefix) as bridge:
            assert bridge.wait() == TRY_LATER
        assert bridge.errors.startswith("seb: SEB_STATE_DIR: ")
        assert len(bridge.errors.splitlines()) == 1
        assert disk.recover() == 0
        assert disk.received["file"] == disk.received["webhook"] == disk.committed()
