"""Approving over the real channel: a console, a broker, bridges and an IMDS that counts POSTs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.console.decision_bench import DecisionBench, audit, decide, ended
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually


@pytest.mark.parametrize("alg", ["EdDSA", "ES256"])
def test_an_approval_starts_the_event_once(tmp_path: Path, alg: str) -> None:
    """An approval is sent, accepted, posted and confirmed. IMDS gets one POST, and the audit names
    the person and the reason.
    """
    with DecisionBench(tmp_path, alg=alg) as bench, bench.console() as console:
        event = bench.due(console, bench.announce())
        answer = decide(console, event, "maintenance window 7")
        assert answer.status_code == 202, answer.text
        jti = answer.json()["jti"]
        assert answer.json()["state"] == "approving"
        command = ended(console, jti)
        states = [each["state"] for each in command["history"]]
        assert states == ["sent", "accepted", "posted", "confirmed"]
        assert command["vmId"] == bench.simulators[0].vm.vm_id
        assert bench.effective == [event["eventId"]]
        (row,) = audit(console)
        assert (row["action"], row["reason"], row["jti"]) == (
            "approve",
            "maintenance window 7",
            jti,
        )
        detail = console.get(f"events/{event['eventId']}")
        assert detail["decision"]["state"] == "approved"
        assert detail["decision"]["by"] == row["actor"]
        assert detail["decision"]["reason"] == "maintenance window 7"
        eventually(lambda: ends(console, event["eventId"]) == ["confirmed"], what="the end")
        again = decide(console, event)
        assert again.status_code == 409


def test_the_next_vm_takes_over_from_one_that_is_stuck(tmp_path: Path) -> None:
    """If the first VM is stuck, the next one approves. The first one's command is invalid when it
    wakes up, so the event is approved once.
    """
    with DecisionBench(tmp_path, vms=2, heartbeat="30") as bench, bench.console() as console:
        event = bench.due(console, bench.announce())
        for bridge in bench.bridges:
            bridge.send(signal.SIGSTOP)
        jti = decide(console, event).json()["jti"]
        first_id = console.get(f"commands/{jti}")["vmId"]
        ids = [each.vm.vm_id for each in bench.simulators]
        stuck, quick = ids.index(first_id), 1 - ids.index(first_id)
        bench.bridges[quick].send(signal.SIGCONT)
        eventually(lambda: bench.effective != [], what="the POST", timeout=60)
        bench.bridges[stuck].send(signal.SIGCONT)
        eventually(
            lambda: console.get(f"commands/{jti}")["state"] == "rejected", what="the refusal"
        )
        assert console.get(f"commands/{jti}")["reason"] == "expired"
        rows = audit(console)
        assert [row["action"] for row in rows] == ["approve", "take_over"]
        assert rows[1]["vmId"] == ids[quick]
        assert ended(console, rows[1]["jti"])["state"] == "confirmed"
        assert bench.effective == [event["eventId"]]
        assert bench.simulators[stuck].approvals == []


def test_a_forged_record_makes_no_approval(tmp_path: Path) -> None:
    """A VM refuses a command for a state that only a forged record under its name has shown, and
    says why.
    """
    with DecisionBench(tmp_path) as bench, bench.console() as console:
        event_id = bench.announce()
        bench.due(console, event_id)
        vm = bench.simulators[0].vm
        fake = FakeVm(name=vm.name, vm_id=vm.vm_id)
        fake.revisions[event_id] = 50
        fields = {
            "event_type": "Freeze",
            "impact": "pause",
            "not_before": "2030-01-01T00:00:00.000Z",
        }
        forged = fake.event(event_id, transition="updated", resources=[vm.name], **fields)
        with MqttFleet(bench.broker) as publisher:
            publisher.say(fake, forged)
        shown = forged.data["fingerprint"]
        eventually(
            lambda: console.events()[event_id]["fingerprint"] == shown, what="the forged record"
        )
        answer = decide(console, console.events()[event_id])
        assert answer.status_code == 202, answer.text
        command = ended(console, answer.json()["jti"])
        assert (command["state"], command["reason"]) == ("rejected", "event_changed")
        eventually(lambda: ends(console, event_id) == ["rejected"], what="the end")
        assert bench.effective == []
        items = console.get(f"events/{event_id}")["timeline"]
        assert "another state" in items[-1]["words"]


def ends(console: ConsoleProcess, event_id: str) -> list[str]:
    """Return how the decisions on an event ended."""
    items = console.get(f"events/{event_id}")["timeline"]
    return [item["outcome"] for item in items if item["kind"] == "decision" and item["outcome"]]
