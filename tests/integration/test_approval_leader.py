"""Two bridges on one event of two VMs, and one rule with a leader: one approval."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.process.bridge import BridgeProcess, fast

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm

NAMES = ("web_1", "web_2")
TAKEOVER = 1.5


class Fleet:
    """Two VMs with a bridge each. Both see the same event, and an approval by either starts it."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._home = home
        self._stack = stack
        self._changed = threading.Condition()
        self.posts: list[str] = []
        self.simulators = {name: self._simulator(name) for name in NAMES}

    def _simulator(self, name: str) -> Simulator:
        made = Simulator(
            vm=SimulatedVm(name=name, vm_id=f"00000000-0000-0000-0000-{ord(name[-1]):012}"),
            on_approval=lambda approval: self._posted(name, json.loads(approval.body)),
        )
        return self._stack.enter_context(made)

    def _posted(self, name: str, body: Mapping[str, Any]) -> None:
        with self._changed:
            self.posts.append(name)
            self._changed.notify_all()
        for other, simulator in self.simulators.items():
            if other != name:
                simulator.start_event(body["StartRequests"][0]["EventId"])

    def wait_for_post(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.posts, 15)

    def announce(self) -> SimulatedEvent:
        """The event, seen by both at the same time. Azure's case is not always the same."""
        event = SimulatedEvent(resources=("WEB_1", "web_2"))
        for simulator in self.simulators.values():
            simulator.announce(event)
        return event

    def bridge(self, name: str, *rules: Mapping[str, Any]) -> BridgeProcess:
        home = self._home / name
        home.mkdir(exist_ok=True)
        env = {
            **fast(self.simulators[name].url, home),
            "SEB_APPROVAL__RULES": json.dumps(rules),
        }
        bridge = BridgeProcess("run", env=env, home=home)
        self._stack.enter_context(bridge)
        bridge.wait_for_log("started")
        return bridge


RULE = {"name": "lead", "max_resources": 2, "leader": "first", "takeover": TAKEOVER}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two VMs."""
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack)


def test_the_leader_approves_for_both(fleet: Fleet) -> None:
    """One POST, by the VM that the event lists first; the other one sees the start."""
    bridges = [fleet.bridge(name, RULE) for name in NAMES]
    fleet.announce()
    fleet.wait_for_post()
    for bridge in bridges:
        bridge.wait_for_records(1, types="seb.event.started")
    assert fleet.posts == ["web_1"]
    receipts = bridges[0].wait_for_records(3, types="seb.approval")
    assert [each["data"]["state"] for each in receipts] == ["accepted", "posted", "confirmed"]
    # Past the takeover the other one has still nothing to do.
    assert fleet.simulators["web_2"].wait_for_gets(
        fleet.simulators["web_2"].gets + int(TAKEOVER * 10) + 2, timeout=10
    )
    assert fleet.posts == ["web_1"]


def test_the_next_one_takes_over_from_a_leader_that_is_dead(fleet: Fleet) -> None:
    """The leader is killed: the second VM acts once `takeover` has passed, and not before."""
    leader, second = (fleet.bridge(name, RULE) for name in NAMES)
    leader.kill()
    fleet.announce()
    (seen,) = second.wait_for_records(1, types="seb.event.scheduled")
    receipts = second.wait_for_records(2, types="seb.approval")
    assert fleet.posts == ["web_2"]
    assert receipts[0]["data"]["actor"] == "rule:lead"
    waited = moment(receipts[0]) - moment(seen)
    assert TAKEOVER <= waited < TAKEOVER + 5


def moment(record: Mapping[str, Any]) -> float:
    """A record's time in seconds."""
    return datetime.fromisoformat(record["time"]).timestamp()
