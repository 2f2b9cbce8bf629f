"""Prepare, then approve, then recover: the program sink and a rule that waits for it."""

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.eventually import eventually
from support.process.bridge import BridgeProcess
from support.process.launch import Launch
from support.process.scripts import is_running, pids, python_script, shell_script

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX scripts")

RULE = {"name": "drained", "event_type": ["Freeze", "Reboot", "Redeploy"], "after": ["drain"]}
# One line a run, written when all else is done: it tells when the program ended, and with what.
PROGRAM = """
import json, os, sys, time
record, home = json.load(sys.stdin), sys.argv[1]
code = 0 if os.path.exists(os.path.join(home, 'ready')) else 3
said = {
    'id': os.environ['SEB_EVENT_ID'],
    'transition': os.environ['SEB_EVENT_TRANSITION'],
    'status': os.environ['SEB_EVENT_STATUS'],
    'sequence': int(record['sequence']),
    'code': code,
    'ended': time.monotonic(),
}
with open(os.path.join(home, 'runs'), 'a') as file:
    file.write(json.dumps(said) + '\\n')
if code:
    print('not ready yet', file=sys.stderr)
sys.exit(code)
"""


class Prepared:
    """A bridge with a program to wait for, and what the program has been told."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.home = launch.home

    def start(self, command: object, **variables: str) -> BridgeProcess:
        """A bridge whose rule waits for this command."""
        return self._launch(
            SEB_SINK__STDOUT__FORMAT="json",
            SEB_SINK__DRAIN__KIND="program",
            SEB_SINK__DRAIN__COMMAND=json.dumps(command),
            SEB_SINK__DRAIN__TYPES='["seb.event.*"]',
            SEB_APPROVAL__RULES=json.dumps([RULE]),
            **variables,
        )

    def program(self) -> list[str]:
        """The command that fails until it is `ready`."""
        return [str(python_script(self.home / "drain", PROGRAM)), str(self.home)]

    def ready(self) -> None:
        """From now on the preparation goes well."""
        (self.home / "ready").touch()

    def runs(self) -> list[dict[str, Any]]:
        """Every run that has ended."""
        path = self.home / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_runs(self, count: int, transition: str = "") -> list[dict[str, Any]]:
        """The runs so far, once there are so many with that transition."""

        def found() -> list[dict[str, Any]]:
            return [run for run in self.runs() if transition in ("", run["transition"])]

        eventually(lambda: len(found()) >= count, what=f"{count} runs {transition}", timeout=30)
        return found()


@pytest.fixture
def prepared(launch: Launch) -> Prepared:
    """A bridge with a program, not yet started."""
    return Prepared(launch)


def an_event(**fields: Any) -> SimulatedEvent:
    """A reboot of this VM, near enough for failed deliveries to be tried again soon."""
    soon = datetime.now(UTC) + timedelta(seconds=100)
    return SimulatedEvent(**{"event_type": "Reboot", "not_before": soon, **fields})


def effective(simulator: Simulator) -> list[Any]:
    """The approvals that set something off."""
    return [approval for approval in simulator.approvals if approval.effective]


def test_prepare_then_approve_then_recover(prepared: Prepared, simulator: Simulator) -> None:
    """A failed preparation approves nothing; the first that goes well does; the end is told."""
    bridge = prepared.start(prepared.program())
    bridge.wait_for_records(1)
    event = simulator.announce(an_event())
    failed = prepared.wait_for_runs(3)
    assert simulator.wait_until_served(gets=5)
    assert simulator.approvals == []
    prepared.ready()
    bridge.wait_for_records(1, types="seb.event.started")
    (approval,) = effective(simulator)
    done = next(run for run in prepared.runs() if run["code"] == 0)
    assert approval.time > done["ended"]
    assert {run["code"] for run in failed} == {3}
    assert {run["sequence"] for run in failed} == {done["sequence"]}
    simulator.end_event(event.event_id)
    (recovered,) = prepared.wait_for_runs(1, "ended")
    assert (recovered["id"], recovered["status"]) == (event.event_id, "Completed")
    assert bridge.stop() == 0
    told = [run["transition"] for run in prepared.runs() if run["code"] == 0]
    assert told == ["scheduled", "started", "ended"]
    receipts = [each["data"] for each in bridge.records if each["type"] == "seb.approval.v1"]
    assert {each["actor"] for each in receipts} == {"rule:drained"}
    assert [each["state"] for each in receipts] == ["accepted", "posted", "confirmed"]


def test_a_stop_leaves_no_program_behind(prepared: Prepared, simulator: Simulator) -> None:
    """A program that runs when the bridge stops has the grace, then it ends with it."""
    code = "trap '' TERM; sleep 600 & echo $$ $! > \"$1\"; wait; sleep 600"
    script = shell_script(prepared.home / "drain", code)
    found = prepared.home / "pids"
    bridge = prepared.start([str(script), str(found)])
    bridge.wait_for_records(1)
    simulator.announce(an_event())
    eventually(lambda: bool(pids(found, 2)), what="the program")
    began = time.monotonic()
    assert bridge.stop() == 0
    assert time.monotonic() - began < 10
    assert bridge.wait_for_log("stopped")["undelivered"] == "drain"
    eventually(lambda: not any(map(is_running, pids(found, 2))), what="the end of both")
    assert simulator.approvals == []


def test_a_restart_runs_it_again(prepared: Prepared, simulator: Simulator) -> None:
    """What was not acknowledged is handed over anew, and the approval waits for that; the start
    says how long nobody looked.
    """
    command = prepared.program()
    first = prepared.start(command)
    first.wait_for_records(1)
    simulator.announce(an_event())
    before = prepared.wait_for_runs(1)[0]
    first.kill()
    assert simulator.approvals == []
    prepared.ready()
    again = prepared.start(command)
    again.wait_for_records(1, types="seb.event.started")
    begun = again.wait_for_records(1, types="seb.bridge.started")[-1]["data"]["started"]
    assert (begun["restarted"], 0 < begun["gapSeconds"] < 60) == (False, True)
    runs: list[Mapping[str, Any]] = [run for run in prepared.runs() if run["code"] == 0]
    assert (runs[0]["sequence"], len(effective(simulator))) == (before["sequence"], 1)
    assert effective(simulator)[0].time > runs[0]["ended"]
    assert again.stop() == 0
