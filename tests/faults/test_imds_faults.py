"""IMDS misbehaves in every way: no change is lost or made up, an approval has one effect."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.eventually import eventually
from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of
from support.faults.sizes import sizes
from support.imds.restless_imds import RestlessImds
from support.process.bridge import BridgeProcess

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import FAULT_NAMES, parse_fault
from bridge.simulator.simulator import Simulator

Tell = Callable[[Figures], None]
# Short enough for a test, and clear of the timeout below: an answer is in time, or it is not.
ARGUMENTS = {
    "429": ["429=0", "429=1"],
    "refused": ["refused=0.5"],
    "slow": ["slow=0.05", "slow=5"],
    "drip": ["drip", "drip=0.001"],
    "drip-headers": ["drip-headers", "drip-headers=0.001"],
}
FAULTS = [text for name in FAULT_NAMES for text in ARGUMENTS.get(name, [name])]
RULE = "mine"
HOLLOW = ("empty", "html", "no-events")
"""A 200 without effect: to a POST that is the whole answer, and nothing tells it from success."""


@dataclass(frozen=True, kw_only=True)
class BridgeUnderFaults:
    """A bridge that lives through all of it."""

    simulator: Simulator
    bridge: BridgeProcess
    env: dict[str, str]
    home: Path

    @property
    def file(self) -> Path:
        """Where the records are written."""
        return self.home / "records.jsonl"

    def evidence(self, case: str, *, rounds: int) -> Evidence:
        """What the file has, once the bridge has ended."""
        assert self.bridge.stop() == 0
        return Evidence(
            case=case,
            rounds=rounds,
            received={"file": self.file.read_bytes().splitlines()},
            documents=certain(self.simulator),
            standing=self.simulator.history[-1].json(),
            outbox=outbox_of(self.home, self.env),
            posts=self.simulator.approvals,
            rules=(RULE,),
        )

    def kinds(self, event_id: str) -> list[str]:
        """What was told of an event."""
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        records = [json.loads(line)["data"] for line in lines if event_id.encode() in line]
        return [each["transition"] for each in records if "transition" in each]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., BridgeUnderFaults]]:
    """Starts a fast bridge that does not wait long."""
    with ExitStack() as stack:

        def start(simulator: Simulator, **more: str) -> BridgeUnderFaults:
            env = {
                "SEB_IMDS__URL": simulator.url,
                "SEB_IMDS__TIMEOUT": "0.5",
                "SEB_IMDS__FIRST_TIMEOUT": "0.5",
                "SEB_STATE_DIR": str(tmp_path / "state"),
                "SEB_POLL_INTERVAL": "0.1",
                "SEB_HEARTBEAT_INTERVAL": "0",
                "SEB_SINK__FILE__PATH": str(tmp_path / "records.jsonl"),
                **more,
            }
            bridge = stack.enter_context(BridgeProcess("run", env=env, home=tmp_path))
            return BridgeUnderFaults(simulator=simulator, bridge=bridge, env=env, home=tmp_path)

        yield start


def live_through(running: BridgeUnderFaults, fault: str) -> None:
    """A pending event starts while IMDS misbehaves, and ends when that is over."""
    simulator = running.simulator
    event = simulator.announce(SimulatedEvent())

    def require_records(*kinds: str) -> None:
        eventually(
            lambda: running.kinds(event.event_id) == list(kinds), what=f"{kinds} after {fault}"
        )

    require_records("scheduled")
    with simulator.change():
        simulator.fault(parse_fault(fault), times=2)
        simulator.start_event(event.event_id)
    require_records("scheduled", "started")
    simulator.end_event(event.event_id)
    require_records("scheduled", "started", "ended")


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_every_fault_alone(running: Callable[..., BridgeUnderFaults], tell: Tell) -> None:
    """Each fault, twice in a row, while an event starts."""
    with Simulator() as simulator:
        alone = running(simulator)
        for fault in FAULTS:
            live_through(alone, fault)
        assert simulator.wait_until_served(gets=2)
        evidence = alone.evidence("IMDS: every fault alone", rounds=len(FAULTS))
        assert "Traceback" not in alone.bridge.errors
    tell(judge(evidence))


def test_every_fault_at_the_start(running: Callable[..., BridgeUnderFaults], tell: Tell) -> None:
    """A bridge that meets every fault before its first document, at both endpoints, finds out who
    it is and misses nothing.
    """
    with Simulator() as simulator:
        quick = [each for each in FAULTS if not each.startswith(("refused", "429=1"))]
        for fault in random.Random(10).sample(quick, len(quick)):
            simulator.fault(parse_fault(fault), at="instance")
        for fault in random.Random(11).sample(quick, len(quick)):
            simulator.fault(parse_fault(fault))
        event = simulator.announce(SimulatedEvent())
        late = running(simulator)
        late.bridge.wait_for_log("started", timeout=60)
        eventually(
            lambda: late.kinds(event.event_id) == ["scheduled"], what="the event", timeout=60
        )
        assert simulator.wait_until_served(gets=2)
        evidence = late.evidence("IMDS: every fault before the first look", rounds=2 * len(quick))
    tell(judge(evidence))


def misbehave(running: BridgeUnderFaults, *, rounds: int, seed: int) -> None:
    """One fault after the other, each until it has been met, while everything changes."""
    simulator, draw = running.simulator, random.Random(seed)
    with RestlessImds(simulator, seed=seed, pause=(0.1, 0.5)) as imds:
        for _ in range(rounds):
            fault, times = parse_fault(draw.choice(FAULTS)), draw.choice((1, 1, 2, 4))
            simulator.fault(fault, times=times)
            changes = len(simulator.history)
            assert simulator.wait_for_gets(simulator.gets + times, timeout=60)
            eventually(
                lambda before=changes: len(simulator.history) > before,  # type: ignore[misc]
                what="a change",
            )
            if draw.random() < 0.7:
                assert simulator.wait_until_served(timeout=60)
        imds.settle()
    simulator.heal()
    assert simulator.wait_until_served(gets=2, timeout=60)


@sizes("rounds", 8, 40, 1000)
def test_faults_at_random(
    running: Callable[..., BridgeUnderFaults], tell: Tell, rounds: int
) -> None:
    """Faults among changes."""
    with Simulator() as simulator:
        restless = running(simulator)
        misbehave(restless, rounds=rounds, seed=rounds)
        evidence = restless.evidence("IMDS: faults at random", rounds=rounds)
    tell(judge(evidence))


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_approvals_under_faults(running: Callable[..., BridgeUnderFaults], tell: Tell) -> None:
    """POSTs meet every fault, lost answers included: each event is started by one of them, and has
    one final receipt.
    """
    with Simulator(approval_delay=0.1) as simulator:
        draw = random.Random(4)
        quick = [each for each in FAULTS if not each.startswith(("refused", *HOLLOW))]
        for fault in draw.sample(quick, len(quick)):
            simulator.fault(parse_fault(fault), at="start")
        rules = json.dumps([{"name": RULE}])
        obedient = running(simulator, SEB_APPROVAL__RULES=rules)
        obedient.bridge.wait_for_log("started")
        events = [simulator.announce(SimulatedEvent()) for _ in range(12)]
        for event in events:
            eventually(
                lambda key=event.event_id: "started" in obedient.kinds(key),  # type: ignore[misc]
                what="the start of an event",
                timeout=120,
            )
        with simulator.change():
            for event in events:
                simulator.end_event(event.event_id)
        obedient.bridge.wait_for_log("approval.confirmed", count=len(events))
        assert simulator.wait_until_served(gets=2)
        evidence = obedient.evidence("IMDS: approvals under every fault", rounds=len(quick))
        effects = [event_id for post in simulator.approvals for event_id in post.started]
    assert sorted(effects) == sorted(event.event_id for event in events)
    tell(judge(evidence))
