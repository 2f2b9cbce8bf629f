"""Records, states and statuses from a real broker, through a real console."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.console.mqtt import Fleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto


def mqtt(broker: Mosquitto, **settings: str) -> dict[str, str]:
    """The settings of a source called broker."""
    return {
        "SOURCE__BROKER__KIND": "mqtt",
        "SOURCE__BROKER__HOST": broker.host,
        "SOURCE__BROKER__PORT": str(broker.port),
        **settings,
    }


def connected(console: ConsoleProcess) -> bool:
    """Whether the broker's source is connected."""
    sources = {each["name"]: each for each in console.get("overview")["sources"]}
    return bool(sources["broker"]["connected"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def fleet(broker: Mosquitto) -> Iterator[Fleet]:
    """A publisher at the broker."""
    with Fleet(broker) as publisher:
        yield publisher


@pytest.fixture
def console(broker: Mosquitto, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """A console that reads from the broker."""
    with ConsoleProcess(tmp_path / "console", **mqtt(broker)) as running:
        eventually(lambda: connected(running), what="the connection")
        yield running


def test_a_published_record_is_shown(console: ConsoleProcess, fleet: Fleet) -> None:
    """A record on a VM's event topic is an open event, and its VM is heard."""
    vm = FakeVm()
    fleet.say(vm, vm.started(), vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the event")
    assert console.contacts() == {"web-1": "heard"}


def test_what_was_published_while_the_console_was_away_comes(
    console: ConsoleProcess, fleet: Fleet
) -> None:
    """The broker keeps the session over a kill -9: nothing that it took is lost."""
    vm = FakeVm()
    fleet.say(vm, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the first event")
    console.kill()
    fleet.say(vm, *(vm.event(f"E{number}") for number in range(2, 52)))
    console.start()
    eventually(lambda: len(console.events(limit=200)) == 51, what="all events")


def test_another_vms_topic_is_refused_and_counted(console: ConsoleProcess, fleet: Fleet) -> None:
    """A record on a topic that is not its VM's is not believed, and does not stop the others."""
    victim, forger, honest = FakeVm(name="victim"), FakeVm(name="forger"), FakeVm(name="honest")
    fleet.publish(forger.topic(), victim.event("E-FORGED").body)
    fleet.publish(forger.topic(), b"\x00 not json")
    fleet.say(honest, honest.event("E-HONEST"))
    eventually(lambda: "E-HONEST" in console.events(), what="the honest event")
    assert "E-FORGED" not in console.events()
    assert list(console.vms()) == ["honest"]


def test_a_lost_connection_is_silent_at_once_and_its_return_ends_that(
    console: ConsoleProcess, fleet: Fleet
) -> None:
    """The bridge's last will makes its VM silent, long before its silent time has passed."""
    vm = FakeVm()
    fleet.retain(vm, "status", vm.status("online"))
    fleet.say(vm, vm.heartbeat())
    eventually(lambda: console.contacts() == {"web-1": "heard"}, what="heard")
    fleet.retain(vm, "status", vm.status("offline", reason="lost"))
    eventually(lambda: console.contacts() == {"web-1": "silent"}, what="silent")
    fleet.retain(vm, "status", vm.status("online"))
    fleet.say(vm, vm.heartbeat())
    eventually(lambda: console.contacts() == {"web-1": "heard"}, what="heard again")


def test_the_present_is_rebuilt_from_what_is_retained(
    broker: Mosquitto, fleet: Fleet, tmp_path: Path
) -> None:
    """A console that has never run before learns VMs and pending events at its first connect."""
    vm = FakeVm()
    record = vm.event("E1")
    fleet.retain(vm, "status", vm.status("online", commands=True))
    fleet.retain(vm, "state", vm.state(record))
    with ConsoleProcess(tmp_path / "console", **mqtt(broker)) as console:
        eventually(lambda: "E1" in console.events(), what="the event")
        event = console.events()["E1"]
        assert event["resources"][0]["vmId"] == vm.vm_id
        assert event["fingerprint"] == record.data["fingerprint"]


def test_an_event_that_is_not_in_a_newer_state_is_over(
    console: ConsoleProcess, fleet: Fleet
) -> None:
    """An end that was missed is learned from the state, and no end is guessed."""
    vm = FakeVm()
    fleet.say(vm, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the event")
    fleet.retain(vm, "state", vm.state(now=datetime.now(UTC) + timedelta(seconds=1)))
    eventually(lambda: console.events() == {}, what="the end")
    assert console.events(state="over")["E1"]["eventStatus"] == "Unknown"


def test_a_broker_that_goes_is_told_and_comes_back(
    console: ConsoleProcess, broker: Mosquitto
) -> None:
    """The console stays while its broker is away, says so, and connects again by itself."""
    broker.stop()
    eventually(lambda: not connected(console), what="disconnected")
    broker.start()
    eventually(lambda: connected(console), what="connected again", timeout=60)
