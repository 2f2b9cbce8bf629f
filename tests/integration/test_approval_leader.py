"""Two bridges on one event of two VMs, and one rule with a leader: one approval."""

import json
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
TAKEOVER = 4.0


class TwoBridges:
    """Two VMs with a bridge each. Both see the same event, and an approval by either starts it."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._home = home
        self._stack = stack
        self.posts: list[str] = []
        self.simulators = {name: self._simulator(name) for name in NAMES}

    def _simulator(self, name: str) -> Simulator:
        made = Simulator(
            vm=SimulatedVm(name=name, vm_id=f"00000000-0000-0000-0000-{ord(name[-1]):012}"),
            on_approval=lambda approval: self._posted(name, json.loads(approval.body)),
        )
        return self._stack.enter_context(made)

    def _posted(self, name: str, body: Mapping[str, Any]) -> None:
        self.posts.append(name)
        for other, simulator in self.simulators.items():
            if other != name:
                simulator.start_event(body["StartRequests"][0]["EventId"])

    def announce(self) -> str:
        """Announce an event to both VMs, whose ids may differ in case; return its id."""
        event = SimulatedEvent(resources=("WEB_1", "web_2"))
        for name in reversed(NAMES):  # the leader last: it may act before the other one has it
            self.simulators[name].announce(event)
        return event.event_id

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
def fleet(tmp_path: Path) -> Iterator[TwoBridges]:
    """Two VMs."""
    with ExitStack() as stack:
        yield TwoBridges(tmp_path, stack)


def test_one_leads_and_the_next_takes_over_from_the_dead(fleet: TwoBridges) -> None:
    """The VM that the event lists first sends the only POST, and the other one sees the start. If
    the first one is killed, the second one acts after `takeover`, and not before.
    """
    leader, second = (fleet.bridge(name, RULE) for name in NAMES)
    fleet.announce()
    receipts = leader.wait_for_records(3, types="seb.approval")
    assert [each["data"]["state"] for each in receipts] == ["accepted", "posted", "confirmed"]
    second.wait_for_records(1, types="seb.event.started")
    leader.kill()
    event_id = fleet.announce()

    def scheduled() -> list[dict[str, Any]]:
        events = (each for each in second.records if "scheduled" in each["type"])
        return [each for each in events if each["data"]["event"]["eventId"] == event_id]

    second.wait_until(lambda: bool(scheduled()), "the second event")
    (seen,) = scheduled()
    receipts = second.wait_for_records(2, types="seb.approval")
    assert fleet.posts == ["web_1", "web_2"]
    assert receipts[0]["data"]["actor"] == "rule:lead"
    asked, acted = (datetime.fromisoformat(each["time"]) for each in (seen, receipts[0]))
    assert TAKEOVER <= (acted - asked).total_seconds() < TAKEOVER + 20
