"""No record leaves before the disk has said that it has it: seen from the kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.faults import strace as fault_strace
from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of
from support.faults.strace import under
from support.faults.sync_trail import CALLS, follow
from support.imds.restless_imds import RestlessImds
from support.process.bridge import SEB, BridgeProcess, fast
from support.sinks.five_sinks import FiveSinks

from bridge.simulator.simulator import Simulator

pytestmark = pytest.mark.skipif(
    fault_strace.why_not() is not None, reason=str(fault_strace.why_not())
)
SINKS = 4
"""File, webhook, broker and standard output; the log goes to a fifth place."""


def test_each_record_is_synced_before_it_is_sent(
    tmp_path: Path, tell: Callable[[Figures], None]
) -> None:
    """The store's sync has returned before the first byte goes to anybody, the log included."""
    log = tmp_path / "calls.log"
    with Simulator() as simulator, FiveSinks(tmp_path) as sinks:
        env = {
            **{name: value for name, value in sinks.env.items() if "EVENTHUB" not in name},
            **fast(simulator.url, tmp_path),
        }
        prefix = [*under(log=log, calls=CALLS), *SEB]
        with BridgeProcess("run", env=env, home=tmp_path, prefix=prefix) as bridge:
            bridge.wait_for_log("started")
            with RestlessImds(simulator, seed=1, pause=(0.15, 0.3)) as imds:
                bridge.wait_for_records(12)
                imds.settle()
            assert simulator.wait_until_served(gets=2)
            assert bridge.stop() == 0
            received = {name: bodies for name, bodies in sinks.received(bridge).items() if bodies}
            ids = [record["id"] for record in bridge.records]
        trails = follow(log.read_text().splitlines(), ids)
        evidence = Evidence(
            case="synced before it is sent",
            received=received,
            documents=certain(simulator),
            standing=simulator.history[-1].json(),
            outbox=outbox_of(tmp_path, env),
        )
    assert len(received) == SINKS
    early = {
        record_id: trail
        for record_id, trail in trails.items()
        if trail.synced is None or min(trail.sent.values()) < trail.synced
    }
    assert early == {}
    assert all(len(trail.sent) >= SINKS for trail in trails.values())
    tell(
        judge(evidence, more=f"sends after their sync {sum(len(t.sent) for t in trails.values())}")
    )
