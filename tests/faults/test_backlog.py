"""A bridge that begins with a large backlog: soon there, in order, and no larger for it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from support.eventually import eventually
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.faults.process import needs_proc, usage
from support.faults.sizes import sizes
from support.process.bridge import BridgeProcess
from support.store_helpers import NOW, draft, recipients

from bridge.simulator.simulator import Simulator
from bridge.store.opening import open_store
from bridge.store.outbox import Outbox

pytestmark = needs_proc
AT_ONCE = 1000
"""Records of a commit, while the backlog is made."""
MAX_START_SECONDS = 20.0
"""Seconds; a hang, not a figure: five seconds is what is promised on two cores."""
MAX_GROWTH_MIB = 32.0
"""MiB that a process may grow while it drains: a batch, not a backlog."""


def pile_up(state: Path, count: int) -> None:
    """A store with so many records that the file has not had."""
    store, _ = open_store(state, NOW)
    Outbox(store).register(recipients("file"))
    for first in range(1, count + 1, AT_ONCE):
        store.commit([draft(number) for number in range(first, min(first + AT_ONCE, count + 1))])
    store.close()


def drain(home: Path, count: int) -> Figures:
    """Start with so many, and deliver them all."""
    pile_up(home / "state", count)
    file = home / "records.jsonl"
    with Simulator() as simulator:
        env = {
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(home / "state"),
            "SEB_HEARTBEAT_INTERVAL": "0",
            "SEB_SINK__FILE__PATH": str(file),
        }
        begun = time.monotonic()
        with BridgeProcess("run", env=env, home=home) as bridge:
            eventually(lambda: file.exists() and file.stat().st_size > 0, what="a record")
            start = time.monotonic() - begun
            sizes = [usage(bridge.pid).memory]
            waiting = count
            while waiting:
                sizes.append(usage(bridge.pid).memory)
                waiting = outbox_of(home, env)["sinks"][0]["backlog"]
            drained = time.monotonic() - begun
            assert bridge.stop() == 0
        received = file.read_bytes().splitlines()
        assert start < MAX_START_SECONDS
        assert max(sizes) - sizes[0] < MAX_GROWTH_MIB
        evidence = Evidence(
            case=f"a backlog of {count:,}",
            received={"file": received},
            standing=None,
            outbox=outbox_of(home, env),
        )
        more = (
            f"first record after {start:.1f} s  all after {drained:.1f} s  "
            f"memory {sizes[0]:.0f} to {max(sizes):.0f} MiB"
        )
        shutil.rmtree(home)  # half a gigabyte that nobody looks at
        return judge(evidence, more=more)


@sizes("count", 2_000, 100_000, 300_000)
def test_a_backlog(tmp_path: Path, tell: Callable[[Figures], None], count: int) -> None:
    """So many records, each in its place."""
    tell(drain(tmp_path, count))
