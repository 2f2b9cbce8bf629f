"""The VM goes down with the bridge in it, in every state of an event, and comes up again."""

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
from bridge.simulator.faults import RefusedFault
from bridge.simulator.simulator import Simulator

BOOTED = Path(__file__).parents[1] / "support" / "faults" / "bridge_of_boot.py"
RULES = json.dumps([{"name": "mine"}])


@dataclass(frozen=True, slots=True)
class Case:
    """A state of an event in which the VM goes down, what it finds, and what it must say."""

    before: Literal["nothing", "scheduled", "started", "vanished", "approved"]
    then: Literal["stays", "starts", "is gone"]
    says: tuple[str, ...] = ()
    """The event's records in the second life: transition, and status of an ending."""
    mine: bool = True
    """Whether the event names this VM."""
    reboot: bool = True
    """Whether it is another boot, or only another process."""

    def __str__(self) -> str:
        whose, again = "" if self.mine else "another VM's, ", "" if self.reboot else "no reboot, "
        return f"{again}{whose}{self.before}, then {self.then}"


ALWAYS = (
    Case("scheduled", "is gone", ("ended Completed",)),
    Case("approved", "is gone", ("ended Completed",)),
    Case("scheduled", "is gone", ("ended Unknown",), reboot=False),
)
"""Those that the quickest run tries."""
CASES = (
    Case("nothing", "is gone"),
    Case("nothing", "stays", ("scheduled",)),
    Case("nothing", "starts", ("started",)),
    Case("scheduled", "stays"),
    Case("scheduled", "starts", ("started",)),
    Case("started", "stays"),
    Case("started", "is gone", ("ended Completed",)),
    Case("vanished", "is gone"),
    Case("vanished", "stays", ("scheduled",)),
    Case("approved", "stays"),
    Case("approved", "starts", ("started",)),
    Case("scheduled", "is gone", ("ended Unknown",), mine=False),
    Case("started", "is gone", ("ended Completed",), mine=False),
    Case("approved", "is gone", ("ended Unknown",), reboot=False),
    Case("started", "is gone", ("ended Completed",), reboot=False),
)


class RebootedVm:
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


def live_twice(home: Path, case: Case) -> tuple[list[Mapping[str, Any]], Evidence]:
    """The records of the second life; and all that the oracle wants to know."""
    with Simulator(approval_delay=60) as simulator:
        machine = RebootedVm(home, simulator, case)
        with machine.boot("boot-1") as bridge:
            bridge.wait_for_log("started")
            assert simulator.wait_until_served(gets=2)
            machine.bring_about()
            bridge.kill()
        lived = {each["sequence"] for each in machine.records}
        simulator.fault(RefusedFault(seconds=None))
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
            case=f"reboot: {case}",
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
    "case",
    [*ALWAYS, *(pytest.param(case, marks=pytest.mark.faults) for case in CASES)],
    ids=str,
)
def test_a_reboot_inside_a_state(
    tmp_path: Path, case: Case, tell: Callable[[Figures], None]
) -> None:
    """The second life says what happened meanwhile, and no more than it knows."""
    records, evidence = live_twice(tmp_path, case)
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
