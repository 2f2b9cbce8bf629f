"""Contact and due decisions, in a real console over real time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console.decision_bench import decide, made_key
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.pull_client import PullClient
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto


def contact_of(console: ConsoleProcess, name: str) -> str | None:
    """Return how a VM is heard."""
    return console.contacts().get(name)


def test_silence_comes_by_itself_and_reaches_open_pages(tmp_path: Path) -> None:
    """A VM without messages is heard, late and silent in turn, and an open page gets each
    change.
    """
    with ConsoleProcess(tmp_path, SILENT_AFTER="3") as console:
        vm = FakeVm(name="quiet")
        assert console.post(vm.heartbeat()).status_code == 204
        eventually(lambda: contact_of(console, "quiet") == "heard", what="heard")
        with console.http.get(f"{console.url}/api/v1/stream", stream=True, timeout=30) as stream:
            told = []
            for line in stream.iter_lines(decode_unicode=True):
                if line.startswith("data: ") and '"contact"' in line:
                    told.append(json.loads(line[6:])["contact"])
                if "silent" in told:
                    break
        assert told == ["late", "silent"]
        assert contact_of(console, "quiet") == "silent"
        assert console.get("overview")["vms"]["silent"] == 1
        assert console.post(vm.heartbeat()).status_code == 204
        eventually(lambda: contact_of(console, "quiet") == "heard", what="heard again")


def test_a_restart_changes_no_contact_and_forgets_no_farewell(tmp_path: Path) -> None:
    """After a restart a VM that was heard is heard, until a console has listened for its silent
    time; a stopped one stays stopped.
    """
    with ConsoleProcess(tmp_path, SILENT_AFTER="6") as console:
        stopped, known = FakeVm(name="stopped"), FakeVm(name="known")
        for record in (stopped.started(), stopped.stopped(), known.heartbeat()):
            assert console.post(record).status_code == 204
        eventually(lambda: contact_of(console, "stopped") == "stopped", what="stopped")
        assert console.stop() == 0
        console.start()
        assert contact_of(console, "known") in ("heard", "late", "learning")
        assert contact_of(console, "stopped") == "stopped"
        eventually(
            lambda: console.contacts() == {"known": "silent", "stopped": "stopped"},
            what="silent",
            timeout=30,
        )
        assert console.post(stopped.started()).status_code == 204
        eventually(lambda: contact_of(console, "stopped") == "heard", what="started again")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


def test_a_decision_is_due_while_a_heard_vm_can_take_it(broker: Mosquitto, tmp_path: Path) -> None:
    """A decision is due if a heard VM that the event names takes commands, and its receipts
    follow.
    """
    settings = {
        "SOURCE__BROKER__KIND": "mqtt",
        "SOURCE__BROKER__HOST": broker.host,
        "SOURCE__BROKER__PORT": str(broker.port),
    }
    with ConsoleProcess(tmp_path / "console", **settings) as console, MqttFleet(broker) as fleet:
        vm, onlooker = FakeVm(name="named"), FakeVm(name="onlooker")

        def decision() -> dict[str, Any]:
            found: dict[str, Any] = console.events().get("E", {}).get("decision", {})
            return found

        fleet.retain(onlooker, "status", onlooker.status("online", commands=True))
        fleet.retain(vm, "status", vm.status("online", commands=False))
        for each in (vm, onlooker):
            fleet.say(each, each.event("E", resources=["named"]))
        eventually(lambda: decision().get("state") == "none", what="nobody can be asked")
        fleet.retain(vm, "status", vm.status("online", commands=True))
        eventually(lambda: decision()["state"] == "due", what="due")
        assert console.get("overview")["decisionsDue"] == 1
        fleet.retain(vm, "status", vm.status("offline", reason="lost", commands=True))
        eventually(lambda: decision()["state"] == "none", what="silent, so not due")
        fleet.retain(vm, "status", vm.status("online", commands=True))
        fleet.say(vm, vm.heartbeat(), vm.receipt("E", "posted", actor="rule:patching"))
        eventually(lambda: decision()["state"] == "approving", what="approving")
        fleet.say(vm, vm.receipt("E", "confirmed", actor="rule:patching"))
        eventually(lambda: decision()["state"] == "approved", what="approved")
        assert decision()["by"] == "rule:patching"
        fleet.say(vm, vm.event("E", transition="started", resources=["named"]))
        eventually(lambda: console.events()["E"]["state"] == "started", what="started")
        assert decision()["state"] == "approved"
        assert console.vms()["named"]["condition"] == "started"
        assert console.vms()["onlooker"]["condition"] == "clear"


def test_a_vm_whose_broker_was_taken_out_takes_commands_over_https(
    broker: Mosquitto, tmp_path: Path
) -> None:
    """If a VM's source is removed, commands go over HTTPS as soon as the VM polls, and not by its
    retained status.
    """
    key, _ = made_key(tmp_path / "keys")
    console = ConsoleProcess(tmp_path / "console", KEY=str(key), PULL="true")
    own = dict(console.environ)
    console.environ |= {
        "SEB_CONSOLE_SOURCE__BROKER__KIND": "mqtt",
        "SEB_CONSOLE_SOURCE__BROKER__HOST": broker.host,
        "SEB_CONSOLE_SOURCE__BROKER__PORT": str(broker.port),
    }
    vm = FakeVm(name="moved")

    def decision() -> dict[str, Any]:
        return dict(console.get("events/E")["decision"])

    with console, MqttFleet(broker) as fleet:
        fleet.retain(vm, "status", vm.status("online", commands=True))
        assert console.post(vm.event("E")).status_code == 204
        eventually(lambda: decision()["state"] == "due", what="due")
        assert console.get(f"vms/{vm.vm_id}")["takesCommands"]
        assert console.stop() == 0
        console.environ = own
        console.start()
        assert console.post(vm.heartbeat()).status_code == 204
        eventually(lambda: contact_of(console, "moved") == "heard", what="heard")
        assert decision()["state"] == "none"
        assert not console.get(f"vms/{vm.vm_id}")["takesCommands"]
        with PullClient(console.url, console.key_file) as client:
            assert client.ask(vm.vm_id, wait=0).status_code == 204
            eventually(lambda: decision()["state"] == "due", what="due")
            assert console.get(f"vms/{vm.vm_id}")["takesCommands"]
            assert decide(console, console.events()["E"]).status_code == 202
            assert len(client.ask(vm.vm_id, wait=5).json()) == 1
