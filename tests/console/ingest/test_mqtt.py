"""Records, states and statuses from a real broker, through a real console."""

from __future__ import annotations

import hashlib
import queue
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto

from console.db.connection.opening import DATABASE_FILE
from console.ingest.client_id import kept_client_id
from console.ingest.messages import read_message
from console.ingest.mqtt import MqttReader
from console.ingest.settings import MqttSource
from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.ingest.state import SourceState
from console.ingest.vm_limits import VmLimits
from console.ingest.writer import Writer
from console.records.incoming import IncomingRecord


def mqtt(broker: Mosquitto, **settings: str) -> dict[str, str]:
    """The settings of a source called broker."""
    return {
        "SOURCE__BROKER__KIND": "mqtt",
        "SOURCE__BROKER__HOST": broker.host,
        "SOURCE__BROKER__PORT": str(broker.port),
        **settings,
    }


def connected(console: ConsoleProcess) -> bool:
    """Return whether the broker's source is connected."""
    sources = {each["name"]: each for each in console.get("overview")["sources"]}
    return bool(sources["broker"]["connected"])


def take_commands(console: ConsoleProcess) -> int:
    """Return how many VMs the console can send commands to."""
    return int(in_database(console, "SELECT count(*) FROM vm WHERE command_source IS NOT NULL"))


def state_read_at(console: ConsoleProcess) -> float:
    """Return when the state document of the only VM was last read."""
    return in_database(console, "SELECT coalesce(max(state_at), 0) FROM vm")


def in_database(console: ConsoleProcess, query: str) -> float:
    """Return the number that a query finds in the console's database."""
    with closing(sqlite3.connect(console.directory / DATABASE_FILE)) as database:
        return float(database.execute(query).fetchone()[0])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def fleet(broker: Mosquitto) -> Iterator[MqttFleet]:
    """A publisher at the broker."""
    with MqttFleet(broker) as publisher:
        yield publisher


@pytest.fixture
def console(broker: Mosquitto, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """A console that reads from the broker."""
    with ConsoleProcess(tmp_path / "console", **mqtt(broker)) as running:
        eventually(lambda: connected(running), what="the connection")
        yield running


def test_a_published_record_is_shown(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """A record on a VM's topic becomes an open event, and the VM is heard."""
    vm = FakeVm()
    fleet.say(vm, vm.started(), vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the event")
    assert console.contacts() == {"web-1": "heard"}


def test_what_was_published_while_the_console_was_away_comes(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """The broker keeps the session over a kill -9, so that no record is lost."""
    vm = FakeVm()
    fleet.say(vm, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the first event")
    console.kill()
    fleet.say(vm, *(vm.event(f"E{number}") for number in range(2, 52)))
    console.start()
    eventually(lambda: len(console.events(limit=200)) == 51, what="all events")


def test_another_vms_topic_is_refused_and_counted(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """A record on another VM's topic is quarantined, and others are stored."""
    victim, forger, honest = FakeVm(name="victim"), FakeVm(name="forger"), FakeVm(name="honest")
    fleet.publish(forger.topic(), victim.event("E-FORGED").body)
    fleet.publish(forger.topic(), b"\x00 not json")
    fleet.say(honest, honest.event("E-HONEST"))
    eventually(lambda: "E-HONEST" in console.events(), what="the honest event")
    assert "E-FORGED" not in console.events()
    assert list(console.vms()) == ["honest"]


def test_a_lost_connection_is_silent_at_once_and_its_return_ends_that(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """A VM is silent at once after its bridge's last will, and heard again after its next
    message.
    """
    vm = FakeVm()
    fleet.retain(vm, "status", vm.status("online"))
    fleet.say(vm, vm.heartbeat())
    eventually(lambda: console.contacts() == {"web-1": "heard"}, what="heard")
    fleet.retain(vm, "status", vm.status("offline", reason="lost"))
    eventually(lambda: console.contacts() == {"web-1": "silent"}, what="silent")
    fleet.retain(vm, "status", vm.status("online"))
    fleet.say(vm, vm.heartbeat())
    eventually(lambda: console.contacts() == {"web-1": "heard"}, what="heard again")


def test_what_a_broker_drops_of_a_large_fleet_is_asked_for(
    tmp_path: Path,
) -> None:
    """A broker queues only so much for one client: of the statuses of a fleet some do not come at
    the first connection. They are asked for once their VMs are heard.
    """
    vms = [FakeVm(name=f"vm-{number}") for number in range(700)]
    with (
        Mosquitto(tmp_path / "broker", extra=["max_queued_messages 20"]) as small,
        MqttFleet(small) as fleet,
    ):
        for vm in vms:
            fleet.retain(vm, "status", vm.status("online", commands=True))
        with ConsoleProcess(tmp_path / "console", **mqtt(small)) as console:
            eventually(lambda: console.get("overview")["vms"]["total"] >= 400, what="the first")
            assert console.get("overview")["vms"]["total"] < 700, "nothing was dropped"

            def have_come() -> bool:
                for vm in vms:
                    fleet.say(vm, vm.heartbeat())
                return take_commands(console) == len(vms)

            eventually(have_come, what="the others", timeout=90)


def test_the_state_of_a_vm_of_which_records_are_missing_is_read_again(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """Records that a broker has dropped are missed at the next heartbeat; the retained state says
    what was in them.
    """
    vm = FakeVm()
    fleet.retain(vm, "state", vm.state())
    fleet.say(vm, vm.started(), vm.heartbeat())
    eventually(lambda: console.contacts() == {"web-1": "heard"}, what="the VM")
    eventually(lambda: state_read_at(console) > 0, what="the state")
    before = state_read_at(console)
    vm.event("E-LOST")
    fleet.say(vm, vm.heartbeat())
    eventually(lambda: state_read_at(console) > before, what="the state again")


def test_the_present_is_rebuilt_from_what_is_retained(
    broker: Mosquitto, fleet: MqttFleet, tmp_path: Path
) -> None:
    """A new console learns VMs and pending events from retained messages at its first connect."""
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
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """An event that is missing from a newer state document has ended, with an unknown outcome."""
    vm = FakeVm()
    fleet.say(vm, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the event")
    fleet.retain(vm, "state", vm.state(now=datetime.now(UTC) + timedelta(seconds=1)))
    eventually(lambda: console.events() == {}, what="the end")
    assert console.events(state="over")["E1"]["eventStatus"] == "Unknown"


def test_a_broker_that_goes_away_is_connected_again(
    console: ConsoleProcess, broker: Mosquitto
) -> None:
    """The console shows that its broker is not connected, and connects again when it is back."""
    broker.stop()
    eventually(lambda: not connected(console), what="disconnected")
    broker.start()
    eventually(lambda: connected(console), what="connected again", timeout=60)


def test_the_client_id_stays_over_restarts_and_a_new_host_name(tmp_path: Path) -> None:
    """The client id is kept in the state directory, and differs for another directory or source."""
    first = kept_client_id(tmp_path / "state", "broker")
    assert kept_client_id(tmp_path / "state", "broker") == first
    assert kept_client_id(tmp_path / "state", "other") != first
    assert kept_client_id(tmp_path / "second", "broker") != first


def test_an_upgraded_console_keeps_its_session(tmp_path: Path) -> None:
    """Beside the database of an earlier version, the client id is the one of that version."""
    (tmp_path / DATABASE_FILE).touch()
    place = f"{socket.gethostname()}\n{tmp_path.resolve()}\nbroker"
    expected = f"seb-console-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    assert kept_client_id(tmp_path, "broker") == expected


def test_a_client_id_that_cannot_be_kept_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A console whose client id cannot be kept works, and the log says what is lost and which
    setting helps.
    """
    (tmp_path / "file").touch()
    assert kept_client_id(tmp_path / "file", "broker").startswith("seb-console-")
    assert "SEB_CONSOLE_SOURCE__BROKER__CLIENT_ID" in caplog.text


def test_a_pod_that_is_replaced_gets_what_came_meanwhile(
    broker: Mosquitto, fleet: MqttFleet, tmp_path: Path
) -> None:
    """With CLIENT_ID, a new pod with an empty state directory gets what the broker kept for the old
    one.
    """
    vm = FakeVm()
    settings = mqtt(broker, SOURCE__BROKER__CLIENT_ID="console-0")
    with ConsoleProcess(tmp_path / "first", **settings) as console:
        eventually(lambda: connected(console), what="the connection")
        console.kill()
    fleet.say(vm, vm.event("E1"))
    with ConsoleProcess(tmp_path / "second", **settings) as console:
        eventually(lambda: "E1" in console.events(), what="the event")


def test_a_console_that_leaves_a_shared_subscription_loses_nothing(
    broker: Mosquitto, fleet: MqttFleet, tmp_path: Path
) -> None:
    """If one of two consoles ends in order, the other one gets the records that it did not take,
    and the broker keeps none for it.
    """
    vm = FakeVm()
    settings = mqtt(broker, SOURCE__BROKER__SHARE="consoles")
    expected = {f"E{number}" for number in range(400)}
    with (
        ConsoleProcess(tmp_path / "first", **settings) as leaves,
        ConsoleProcess(tmp_path / "second", **settings) as stays,
    ):
        for console in (leaves, stays):
            eventually(lambda console=console: connected(console), what="the connection")
        for number in range(100):
            fleet.say(vm, vm.event(f"E{number}"))
        ending = threading.Thread(target=leaves.stop)
        ending.start()
        for number in range(100, 400):
            fleet.say(vm, vm.event(f"E{number}"))
        ending.join()
        eventually(lambda: "E399" in stays.events(limit=1000), what="the last event")
        taken = set(stays.events(limit=1000))
    settings.pop("SOURCE__BROKER__SHARE")
    with ConsoleProcess(tmp_path / "first") as left:
        assert taken | set(left.events(limit=1000)) == expected


class HeldInbox:
    """A writer that accepts everything, and commits nothing until a test lets it."""

    def __init__(self) -> None:
        self.taken: queue.Queue[SourceBatch] = queue.Queue()

    def put(self, delivery: SourceBatch, *, timeout: float | None = None) -> None:
        self.taken.put(delivery)


def test_a_message_that_brings_out_a_bug_stops_no_other(
    broker: Mosquitto, fleet: MqttFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message whose reading raises goes to quarantine, and the next one is stored over the same
    connection.
    """

    def broken(topic: str, payload: bytes, **more: Any) -> object:
        if payload == b"bug":
            raise KeyError("nobody thought of this")
        return read_message(topic, payload, **more)

    monkeypatch.setattr("console.ingest.mqtt.read_message", broken)
    vm = FakeVm()
    inbox = HeldInbox()
    state = SourceState(name="broker", kind="mqtt")
    settings = MqttSource(kind="mqtt", host=broker.host, port=broker.port)
    reader = MqttReader(
        settings,
        state=state,
        writer=cast("Writer", inbox),
        vm_limits=VmLimits(records=0, size=0),
        client_id="console",
    )
    reader.start()
    try:
        eventually(lambda: state.is_connected, what="the connection")
        since = state.since
        fleet.publish(vm.topic(), b"bug")
        fleet.say(vm, vm.event("E1"))
        deliveries = [inbox.taken.get(timeout=20) for _ in range(2)]
        refused, record = (delivery.items[0] for delivery in deliveries)
        assert isinstance(refused, QuarantinedMessage)
        assert (refused.reason, refused.sample) == ("unreadable", b"bug")
        assert isinstance(record, IncomingRecord)
        assert state.since == since
    finally:
        reader.stop()
