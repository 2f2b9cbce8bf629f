"""A disk that fails at every nth call: nothing is lost, and nothing is sent that is not kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fault_strace
import pytest
from bridge_process import SEB, BridgeProcess
from fault_disk import CONFIGURATION, TRY_LATER, BadDisk
from fault_gate import GatedReceiver
from fault_strace import under
from oracle import Evidence, Figures, certain, judge, outbox_of

from bridge.simulator import Simulator

pytestmark = pytest.mark.skipif(
    fault_strace.why_not() is not None, reason=str(fault_strace.why_not())
)
FAULTS = {
    "sync of the store": "fdatasync:error=EIO",
    "write of the store": "pwrite64:error=ENOSPC",
    "write of file and log": "write:error=ENOSPC",
    "sync of the file": "fsync:error=EIO",
}
ENOUGH_LOOKS = 12
"""After so many looks at one document a commit of it must have succeeded."""


def suffer(home: Path, fault: str, every: int, *, seconds: float) -> Figures:
    """So long with every nth call failing, then a life without faults, and the verdict."""
    with Simulator() as simulator, GatedReceiver() as receiver:
        disk = BadDisk(home, simulator, receiver)
        disk.suffer(f"{FAULTS[fault]}:when={every}+{every}", seconds=seconds, seed=every)
        assert disk.recover() == 0
        for said in disk.said:
            assert "Traceback" not in said, said
        assert set(disk.ends) <= {TRY_LATER, CONFIGURATION}
        committed, received = disk.committed(), disk.received
        for sink, bodies in received.items():
            assert set(bodies) <= set(committed), f"{sink} got what was not committed"
        evidence = Evidence(
            case=f"{fault}, every {every}",
            rounds=disk.lives,
            received=received,
            documents=certain(simulator, looks=ENOUGH_LOOKS),
            standing=simulator.history[-1].json(),
            committed=committed,
            outbox=outbox_of(home, disk.env),
        )
        return judge(evidence, more=f"failed starts {len(disk.ends)}")


@pytest.mark.parametrize("fault", FAULTS)
def test_every_third_call_fails(
    tmp_path: Path, fault: str, tell: Callable[[Figures], None]
) -> None:
    """Whatever the disk refuses is tried again, and nobody hears of what it refused."""
    tell(suffer(tmp_path, fault, 3, seconds=3))


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("every", [2, 4, 5, 7, 11])
def test_every_nth_call_fails(
    tmp_path: Path, fault: str, every: int, tell: Callable[[Figures], None]
) -> None:
    """The same for others, each of which hits other calls."""
    tell(suffer(tmp_path, fault, every, seconds=5))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("every", range(2, 30))
def test_long_with_every_nth_call(
    tmp_path: Path, fault: str, every: int, tell: Callable[[Figures], None]
) -> None:
    """And for long."""
    tell(suffer(tmp_path, fault, every, seconds=20))


@pytest.mark.parametrize("rule", ["fdatasync:error=EIO", "pwrite64:error=ENOSPC"])
def test_a_disk_that_takes_nothing(tmp_path: Path, rule: str) -> None:
    """It is told what is wrong, in a sentence, with an exit code that means: try again later."""
    with Simulator() as simulator, GatedReceiver() as receiver:
        disk = BadDisk(tmp_path, simulator, receiver)
        prefix = [*under(rule), *SEB]
        with BridgeProcess("run", env=disk.env, home=tmp_path, prefix=prefix) as bridge:
            assert bridge.wait() in (TRY_LATER, CONFIGURATION)
        assert bridge.errors.startswith("seb: SEB_STATE_DIR: ")
        assert len(bridge.errors.splitlines()) == 1
        assert disk.recover() == 0
        assert disk.received["file"] == disk.received["webhook"] == disk.committed()
