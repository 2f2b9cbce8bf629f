"""Sources that refuse, are a day behind, mix up the order, or bring a million messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from support.amqp.faults import HubFault
from support.amqp.message import PARTITION_KEY, HubMessage
from support.amqp.server import EventHubServer
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto

from console.db.connection.opening import DATABASE_FILE
from sinks.kinds.mqtt.messages import EVENT_EXPIRY
from tests.benchmarks.measure import resident_mib
from tests.benchmarks.mqtt_feed import publish
from wire.record import Record

DAY = 86_400


def mqtt(broker: Mosquitto, **fields: str) -> dict[str, str]:
    """The settings of a source called broker."""
    told = {"KIND": "mqtt", "HOST": broker.host, "PORT": str(broker.port), **fields}
    return {f"SOURCE__BROKER__{name}": value for name, value in told.items()}


def trouble(console: ConsoleProcess, name: str) -> str:
    """Return why a source is not connected; empty while it is."""
    sources = {each["name"]: each for each in console.get("overview")["sources"]}
    return "" if sources[name]["connected"] else sources[name]["trouble"] or ""


def is_shown(console: ConsoleProcess, words: str, name: str) -> bool:
    """Check whether API and page say why a source is not connected, and readiness that it is
    not.
    """
    ready = console.http.get(f"{console.url}/readyz", timeout=10)
    page = console.http.get(console.url, timeout=10).text
    return (
        words in trouble(console, name)
        and (ready.status_code, f"source {name}: not connected" in ready.text) == (200, True)
        and f"ource {name}" in page
        and "is not connected" in page
    )


def lag(console: ConsoleProcess, source: str) -> float:
    """Return by how many seconds a source is behind, by the metric."""
    start = f'seb_console_source_lag_seconds{{source="{source}"}} '
    lines = console.http.get(f"{console.url}/metrics", timeout=10).text.splitlines()
    return next(float(line.removeprefix(start)) for line in lines if line.startswith(start))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


def test_a_broker_that_refuses_is_shown_and_others_are_read(tmp_path: Path) -> None:
    """A broker's refused password is in the API, on the page and at /readyz; the webhook source
    works on.
    """
    password = tmp_path / "password"
    password.write_text("wrong")
    with Mosquitto(tmp_path / "broker", users={"console": "right"}) as broker:
        settings = mqtt(broker, USERNAME="console", PASSWORD_FILE=str(password))
        with ConsoleProcess(tmp_path / "console", **settings) as console:
            eventually(
                lambda: is_shown(console, "refused", "broker"), what="the refusal", timeout=40
            )
            vm = FakeVm()
            assert console.post(vm.event("E1")).status_code == 204
            eventually(lambda: "E1" in console.events(), what="the other source")
            password.write_text("right")  # it is read again at each connect
            eventually(lambda: not trouble(console, "broker"), what="the connection", timeout=60)


def test_a_hub_that_refuses_is_shown(tmp_path: Path) -> None:
    """A token that a hub refuses is shown, and the hub is read as soon as it accepts one."""
    with EventHubServer(partitions=2) as hub:
        hub.misbehave(HubFault.CBS_STATUS, status=401)
        settings = {"SOURCE__HUB__KIND": "eventhub"}
        settings["SOURCE__HUB__CONNECTION_STRING"] = hub.connection_string("fleet")
        vm = FakeVm()
        hub.append("fleet", [in_hub(vm.event("E1"))])
        with ConsoleProcess(tmp_path, **settings) as console:
            eventually(
                lambda: trouble(console, "hub") not in ("", "not connected yet"),
                what="the refusal",
                timeout=60,
            )
            assert is_shown(console, trouble(console, "hub"), "hub")
            hub.heal()
            eventually(lambda: "E1" in console.events(), what="the event", timeout=90)


def in_hub(record: Record) -> HubMessage:
    """Return a record as a bridge sends it to a hub."""
    return HubMessage(body=record.body, annotations={PARTITION_KEY: record.partition_key})


def test_what_lay_at_a_broker_for_a_day_hides_no_silence(broker: Mosquitto, tmp_path: Path) -> None:
    """A record that waited at the broker for a day shows its event, and its VM counts as heard
    yesterday.
    """
    vm, fresh = FakeVm(name="yesterday"), FakeVm(name="today")
    then = datetime.now(UTC) - timedelta(days=1)
    with (
        ConsoleProcess(tmp_path / "console", **mqtt(broker)) as console,
        MqttFleet(broker) as fleet,
    ):
        eventually(lambda: not trouble(console, "broker"), what="the connection")
        late = vm.event("E-LATE", now=then)
        fleet.publish(vm.topic(), late.body, expiry=EVENT_EXPIRY - DAY)
        fleet.say(fresh, fresh.heartbeat())
        eventually(lambda: {"yesterday", "today"} <= set(console.vms()), what="both VMs")
        assert "E-LATE" in console.events()
        heard = datetime.fromisoformat(console.vms()["yesterday"]["lastHeardAt"])
        assert abs(heard - then) < timedelta(minutes=5)
        assert console.contacts()["yesterday"] != "heard"
        assert console.contacts()["today"] == "heard"
        assert lag(console, "broker") < 60
        fleet.publish(vm.topic(), vm.event("E-LATER", now=then).body, expiry=EVENT_EXPIRY - DAY)
        eventually(lambda: lag(console, "broker") == pytest.approx(DAY, abs=600), what="the lag")


def test_a_hub_that_is_a_day_behind_shows_its_lag(tmp_path: Path) -> None:
    """Contact counts by the hub's time, and the metric says how far behind the reading is."""
    with EventHubServer(partitions=1) as hub:
        vm = FakeVm(name="yesterday")
        then = datetime.now(UTC) - timedelta(days=1)
        hub.append("fleet", [in_hub(vm.event("E-LATE", now=then))])
        (partition,) = hub._hubs["fleet"]
        partition.messages[:] = [
            (message, enqueued - 1000 * DAY) for message, enqueued in partition.messages
        ]
        settings = {"SOURCE__HUB__KIND": "eventhub"}
        settings["SOURCE__HUB__CONNECTION_STRING"] = hub.connection_string("fleet")
        with ConsoleProcess(tmp_path, **settings) as console:
            eventually(lambda: "E-LATE" in console.events(), what="the event", timeout=60)
            assert console.contacts()["yesterday"] != "heard"
            assert lag(console, "hub") == pytest.approx(DAY, abs=600)


def test_any_order_and_copies_over_a_real_broker_come_to_the_same(
    broker: Mosquitto, tmp_path: Path
) -> None:
    """Records that come in any order, some of them twice, are each counted once, and none is
    missing.
    """
    vms = [FakeVm(name=f"web-{number}", scale_set="set") for number in range(5)]
    names = [vm.name for vm in vms]
    said = [(vm, vm.started()) for vm in vms]
    for number in range(20):
        for transition in ("scheduled", "started", "ended") if number % 2 else ("scheduled",):
            said += [
                (vm, vm.event(f"E{number}", transition=transition, resources=names)) for vm in vms
            ]
    random = Random(12)
    mixed = said + said[::3]
    random.shuffle(mixed)
    with (
        ConsoleProcess(tmp_path / "console", **mqtt(broker)) as console,
        MqttFleet(broker) as fleet,
    ):
        eventually(lambda: not trouble(console, "broker"), what="the connection")
        for vm, record in mixed:
            fleet._client.publish(vm.topic(), record.body, 1)
        marker = FakeVm(name="marker")
        fleet.say(marker, marker.heartbeat())
        eventually(lambda: "marker" in console.vms(), what="everything is read", timeout=60)
        found = console.events(limit=100)
        assert set(found) == {f"E{number}" for number in range(0, 20, 2)}
        assert {event["seenBy"] for event in found.values()} == {5}
        assert len(console.events(state="over", limit=100)) == 10
        assert {vm["gaps"] for vm in console.vms().values()} == {0}


def test_a_newer_schema_ends_the_console_in_words(tmp_path: Path) -> None:
    """A database of a later version is not changed; the console ends with 78 and a remedy."""
    console = ConsoleProcess(tmp_path).start()
    assert console.stop() == 0
    with sqlite3.connect(tmp_path / DATABASE_FILE) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    done = console.run("run")
    assert done.returncode == 78
    assert "newer than this console; upgrade the console" in done.stderr


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1200)
def test_a_flood_is_taken_in_bounded_memory(broker: Mosquitto, tmp_path: Path, count: int) -> None:
    """Records, copies and garbage at the broker's full speed are all read, and limited memory is
    used.
    """
    vms = [FakeVm(name=f"web-{number}") for number in range(50)]
    bodies = [
        vm.heartbeat().body if number % 10 else b"garbage %d" % number
        for number, vm in enumerate(vms * 20)
    ]
    lines = [
        b"%s %s" % (vm.topic().encode(), body) for vm, body in zip(vms * 20, bodies, strict=True)
    ]
    with ConsoleProcess(tmp_path / "console", **mqtt(broker)) as console:
        eventually(lambda: not trouble(console, "broker"), what="the connection")
        assert console.process is not None
        before = resident_mib(console.process.pid)
        for _ in range(count // len(lines)):
            publish(broker.port, lines, 0)
        marker = FakeVm(name="marker")
        with MqttFleet(broker) as fleet:
            fleet.say(marker, marker.event("E-LAST"))
        eventually(lambda: "E-LAST" in console.events(), what="the last record", timeout=900)
        assert console.http.get(f"{console.url}/readyz", timeout=10).status_code == 200
        sources = {each["name"]: each for each in console.get("overview")["sources"]}
        # A broker that meets a busy console may send some of them twice.
        assert sources["broker"]["quarantined"] >= count // 10
        assert resident_mib(console.process.pid) < before + 100
