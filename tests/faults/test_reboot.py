"""The VM goes down with the bridge in it, in every state of an event, and comes up again.

What the records say afterwards is what DESIGN.md, section 4, says of endings.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from support.eventually import eventually
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.process.bridge import BridgeProcess, fast

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import Refused
from bridge.simulator.simulator import Simulator

BOOTED = Path(__file__).parents[1] / "support" / "faults" / "booted.py"
RULES = json.dumps([{"name": "mine"}])
Then = Literal["stays", "starts", "is gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A state of an event in which the VM goes down, what it finds, and what it must say."""

    before: Literal["nothing", "scheduled", "started", "vanished", "approved"]
    then: Then
    says: tuple[str, ...]
    """The event's records in the second life: transition, and status of an ending."""
    mine: bool = True
    """Whether the event names this VM."""
    reboot: bool = True
    """Whether it is another boot, or only another process."""


CASES = {
    "nothing, and nothing comes": Case(before="nothing", then="is gone", says=()),
    "nothing, and one comes": Case(before="nothing", then="stays", says=("scheduled",)),
    "nothing, and one has started": Case(before="nothing", then="starts", says=("started",)),
    "scheduled, and it stays": Case(before="scheduled", then="stays", says=()),
    "scheduled, and it has started": Case(before="scheduled", then="starts", says=("started",)),
    "scheduled, and it is gone": Case(
        before="scheduled", then="is gone", says=("ended Completed",)
    ),
    "started, and it stays": Case(before="started", then="stays", says=()),
    "started, and it is gone": Case(before="started", then="is gone", says=("ended Completed",)),
    "just vanished": Case(before="vanished", then="is gone", says=()),
    "just vanished, and it is back": Case(before="vanished", then="stays", says=("scheduled",)),
    "approved by us, and it stays": Case(before="approved", then="stays", says=()),
    "approved by us, and it has started": Case(before="approved", then="starts", says=("started",)),
    "approved by us, and it is gone": Case(
        before="approved", then="is gone", says=("ended Completed",)
    ),
    "another VM's, and it is gone": Case(
        before="scheduled", then="is gone", says=("ended Unknown",), mine=False
    ),
    "another VM's that had started": Case(
        before="started", then="is gone", says=("ended Completed",), mine=False
    ),
    "no reboot, and it is gone": Case(
        before="scheduled", then="is gone", says=("ended Unknown",), reboot=False
    ),
    "no reboot, approved by us": Case(
        before="approved", then="is gone", says=("ended Unknown",), reboot=False
    ),
    "no reboot, it had started": Case(
        before="started", then="is gone", says=("ended Completed",), reboot=False
    ),
}


ALWAYS = (
    "scheduled, and it is gone",
    "approved by us, and it is gone",
    "no reboot, and it is gone",
)
"""Those that the quickest run tries."""


class Machine:
    """A VM that boots twice, with one event."""

    def __init__(self, home: Path, simulator: Simulator, case: Case) -> None:
        self.home = home
        self.simulator = simulator
        self.case = case
        self.file = home / "records.jsonl"
        self.event = SimulatedEvent(
            event_type="Reboot",
            resources=(simulator.vm.name if case.mine else "another",),
            not_before=datetime.now(UTC) + timedelta(hours=1),
        )

    @property
    def env(self) -> dict[str, str]:
        """The variables of its bridge."""
        return {
            **fast(self.simulator.url, self.home),
            "SEB_SINK__FILE__PATH": str(self.file),
            **({"SEB_APPROVAL__RULES": RULES} if self.case.before == "approved" else {}),
        }

    @property
    def records(self) -> list[dict[str, Any]]:
        """What the file has."""
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        return [json.loads(line) for line in lines]

    def boot(self, name: str) -> BridgeProcess:
        """The bridge in a boot of that name, not started."""
        command = (sys.executable, str(BOOTED), name)
        return BridgeProcess("run", env=self.env, home=self.home, prefix=command)

    def hear(self, kind: str, state: str | None = None) -> None:
        """Wait for a record of that type."""
        eventually(
            lambda: any(
                each["type"] == kind and state in (None, each["data"].get("state"))
                for each in self.records
            ),
            what=f"{kind} {state or ''}",
        )

    def bring_about(self) -> None:
        """The state in which the VM goes down, as the bridge has seen it."""
        before = self.case.before
        if before == "nothing":
            return
        self.simulator.announce(self.event)
        self.hear("seb.event.scheduled.v1")
        match before:
            case "started":
                self.simulator.start_event(self.event.event_id)
                self.hear("seb.event.started.v1")
            case "vanished":
                self.simulator.end_event(self.event.event_id)
                self.hear("seb.event.ended.v1")
            case "approved":
                self.hear("seb.approval.v1", "posted")
            case _:
                pass

    def pass_time(self) -> None:
        """What becomes of the event while the VM is down."""
        there = any(
            each["EventId"] == self.event.event_id
            for each in self.simulator.history[-1].json()["Events"]
        )
        if self.case.then == "is gone":
            if there:
                self.simulator.end_event(self.event.event_id)
            return
        if not there:
            self.simulator.announce(self.event)
        if self.case.then == "starts":
            self.simulator.start_event(self.event.event_id)


def live_twice(home: Path, name: str) -> tuple[list[Mapping[str, Any]], Evidence]:
    """The records of the second life; and all that the oracle wants to know."""
    case = CASES[name]
    with Simulator(approval_delay=60) as simulator:
        machine = Machine(home, simulator, case)
        with machine.boot("boot-1") as bridge:
            bridge.wait_for_log("started")
            assert simulator.wait_until_served(gets=2)
            machine.bring_about()
            bridge.kill()
        lived = {each["sequence"] for each in machine.records}
        simulator.fault(Refused(seconds=None))
        with machine.boot("boot-2" if case.reboot else "boot-1") as bridge:
            bridge.wait_for_log("started")
            machine.pass_time()
            gets = simulator.history[-1].gets
            simulator.heal()
            assert simulator.wait_until_served(gets=gets + 3)
            if case.reboot:  # nothing is delivered in a new boot before IMDS says whose VM this is
                bridge.wait_for_log("identity_ok")
            assert bridge.stop() == 0
        evidence = Evidence(
            case=f"reboot: {name}",
            received={"file": machine.file.read_bytes().splitlines()},
            documents=[document.json() for document in simulator.history if document.gets >= 2],
            standing=simulator.history[-1].json(),
            outbox=outbox_of(home, machine.env),
            posts=simulator.approvals,
            rules=["mine"],
        )
        # What the first life had sent and not marked comes again.
        later = {each["sequence"]: each for each in machine.records}
        return [each for sequence, each in later.items() if sequence not in lived], evidence


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in ALWAYS else [pytest.mark.faults]) for name in CASES],
)
def test_a_reboot_inside_a_state(
    tmp_path: Path, name: str, tell: Callable[[Figures], None]
) -> None:
    """The second life says what happened meanwhile, and no more than it knows."""
    case = CASES[name]
    records, evidence = live_twice(tmp_path, name)
    told = [each["data"] for each in records if each["type"].startswith("seb.event.")]
    assert case.says == tuple(map(in_words, told))
    for each in told:
        if each["transition"] == "ended":
            assert each["observation"]["restarted"] is case.reboot
            assert (each["observation"]["downtimeSeconds"] is not None) is case.reboot
    (start,) = (each["data"]["started"] for each in records if "started" in each["data"])
    assert start["restarted"] is case.reboot
    tell(judge(evidence))


def in_words(data: Mapping[str, Any]) -> str:
    """A record's transition, and how it ended."""
    kind, status = data["transition"], data["event"]["eventStatus"]
    return f"{kind} {status}" if kind == "ended" else str(kind)
