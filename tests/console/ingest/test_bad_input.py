"""Input that is wrong, strange or too much, over a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto

from wire.record import Record

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """One broker for the module."""
    with Mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(broker: Mosquitto) -> Iterator[MqttFleet]:
    """A publisher at the broker."""
    with MqttFleet(broker) as publisher:
        yield publisher


@pytest.fixture(scope="module")
def console(
    broker: Mosquitto, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    """A console that reads from the broker."""
    settings = {
        "SOURCE__BROKER__KIND": "mqtt",
        "SOURCE__BROKER__HOST": broker.host,
        "SOURCE__BROKER__PORT": str(broker.port),
    }
    with ConsoleProcess(tmp_path_factory.mktemp("console"), **settings) as running:
        eventually(lambda: "source_connected" in running.log, what="the connection")
        yield running


def changed(record: Record, change: Change) -> bytes:
    """Return a record's bytes with something changed."""
    envelope = json.loads(record.body)
    change(envelope)
    return json.dumps(envelope).encode()


def setting(path: str, value: Any) -> Change:
    """Return a change that sets a field."""

    def change(envelope: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place = envelope
        for name in parents:
            place = place[name]
        place[last] = value

    return change


def dropping(path: str) -> Change:
    """Return a change that leaves a field out."""

    def change(envelope: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place = envelope
        for name in parents:
            place = place[name]
        del place[last]

    return change


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("newer_version", setting("type", "seb.event.scheduled.v2")),
        ("newer_version", setting("dataschema", "urn:scheduled-events-bridge:record:v2")),
        ("unknown_type", setting("type", "com.example.order")),
        ("wrong_type", setting("sequence", 7)),
        ("wrong_type", setting("sequence", "9" * 20)),
        ("wrong_type", setting("time", "yesterday")),
        ("wrong_type", setting("time", "2026-99-99T00:00:00.000Z")),
        ("wrong_type", setting("time", "0001-01-01T00:00:00+14:00")),
        ("wrong_type", setting("data", [])),
        ("wrong_type", setting("data.event.resources", "web-1")),
        ("wrong_type", setting("data.event.eventId", {"$ne": 1})),
        ("wrong_type", setting("data.revision", 2**64)),
        ("wrong_type", setting("data.revision", True)),  # a value of the record
        ("wrong_type", setting("specversion", "0.3")),
        ("wrong_type", setting("data.event.resources", ["another"])),  # not what was hashed
        ("wrong_type", setting("data.event.notBefore", None)),
        ("wrong_type", setting("data.observation.noticeSeconds", float("inf"))),
        ("wrong_type", setting("data.observation.pauseSeconds", float("nan"))),
        ("missing_field", dropping("data.vm")),
        ("missing_field", dropping("data.fingerprint")),
        ("missing_field", dropping("stream")),
        ("foreign_vm", setting("data.vm.vmId", "somebody-else")),
        ("foreign_vm", setting("partitionkey", "somebody-else")),
    ],
)
def test_an_invalid_record_is_counted_with_its_reason(
    console: ConsoleProcess, fleet: MqttFleet, reason: str, change: Change
) -> None:
    """An invalid record changes nothing, its reason is in the metric, and the next record is
    stored.
    """
    before = quarantined(console, reason)
    vm = FakeVm(name="strict")
    fleet.publish(vm.topic(), changed(vm.event("E-STRANGE"), change))
    eventually(lambda: quarantined(console, reason) == before + 1, what=reason)
    assert "E-STRANGE" not in console.events()


@pytest.mark.parametrize(
    "moment", ["2026-02-30T00:00:00Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]
)
def test_a_not_before_that_no_calendar_has_is_set_aside(
    console: ConsoleProcess, fleet: MqttFleet, moment: str
) -> None:
    """A record with an impossible notBefore goes to quarantine, because events are sorted by that
    time.
    """
    before = quarantined(console, "wrong_type")
    vm = FakeVm(name=f"timeless {moment}")
    fleet.say(vm, vm.event("E-NEVER", not_before=moment))
    eventually(lambda: quarantined(console, "wrong_type") == before + 1, what="the record")
    assert "E-NEVER" not in console.events()
    state = vm.state(vm.event("E-NEVER", not_before=moment))
    fleet.publish(vm.topic("state"), state)
    eventually(lambda: quarantined(console, "wrong_type") == before + 2, what="the state too")


def test_quarantined_messages_are_shown(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """API and page show how many messages were quarantined, why, and the last one of each
    reason.
    """
    vm = FakeVm(name="newer")
    newer = changed(vm.event("E-NEWER"), setting("type", "seb.event.scheduled.v2"))
    fleet.publish(vm.topic(), newer)
    eventually(
        lambda: vm.topic() in reasons(console).get("newer_version", {}).get("message", ""),
        what="the reason, with the newest message of it",
    )
    found = reasons(console)["newer_version"]
    assert found["source"] == "broker"
    assert found["count"] >= 1
    assert "upgrade the console" in found["message"]
    sources = {each["name"]: each for each in console.get("overview")["sources"]}
    assert sources["broker"]["quarantined"] >= 1
    page = console.http.get(console.url, timeout=10).text
    assert "newer_version" in page


def reasons(console: ConsoleProcess) -> dict[str, Any]:
    """Return how many messages were quarantined, by reason."""
    return {item["reason"]: item for item in console.get("quarantine")["items"]}


def quarantined(console: ConsoleProcess, reason: str) -> float:
    """Return the metric for a reason."""
    wanted = f'seb_console_quarantined_total{{reason="{reason}",source="broker"}}'
    other = f'seb_console_quarantined_total{{source="broker",reason="{reason}"}}'
    for line in console.http.get(f"{console.url}/metrics", timeout=10).text.splitlines():
        name, _, value = line.rpartition(" ")
        if name in (wanted, other):
            return float(value)
    return 0.0


@pytest.mark.parametrize("cut", [1, 100, 700])
def test_a_truncated_record_is_set_aside(
    console: ConsoleProcess, fleet: MqttFleet, cut: int
) -> None:
    """Half a record goes to quarantine."""
    before = quarantined(console, "not_json")
    vm = FakeVm(name="cut")
    fleet.publish(vm.topic(), vm.event("E-CUT").body[:cut])
    eventually(lambda: quarantined(console, "not_json") == before + 1, what="the count")


def test_a_record_above_256_kib_is_set_aside(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """A record above 256 KiB goes to quarantine, and one just below is stored."""
    vm = FakeVm(name="large")
    fleet.publish(vm.topic(), changed(vm.event("E-HUGE"), setting("data.raw", "x" * 262_144)))
    large = changed(vm.event("E-LARGE"), setting("data.raw", "x" * 250_000))
    fleet.publish(vm.topic(), large)
    eventually(lambda: "E-LARGE" in console.events(), what="the large one")
    assert "E-HUGE" not in console.events()
    assert quarantined(console, "too_large") == 1


def test_fields_of_a_later_version_are_ignored(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """A record with unknown fields is stored, and so is one with a new type of v1."""
    vm = FakeVm(name="later")

    def add(envelope: dict[str, Any]) -> None:
        envelope["data"]["future"] = {"a": [1]}
        envelope["data"]["event"]["future"] = None

    fleet.publish(vm.topic(), changed(vm.event("E-LATER"), add))
    fleet.say(vm, vm.record("seb.bridge.something-new.v1", {"new": 1}))
    eventually(lambda: "E-LATER" in console.events(), what="the event")
    eventually(lambda: console.vms()["later"]["gaps"] == 0, what="no gap")


def test_texts_of_every_kind_are_only_texts(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """Markup, SQL, control characters and right-to-left marks are shown as they were sent."""
    vm = FakeVm(name="<script>alert(1)</script>")
    text = "'; DROP TABLE vm; -- \u202e\u0007 {{7*7}} <img src=x onerror=alert(1)>"
    fleet.say(vm, vm.event("E-TEXT", description=text, resources=[vm.name, "a\u0001b"]))
    eventually(lambda: "E-TEXT" in console.events(), what="the event")
    assert console.events()["E-TEXT"]["description"] == text
    page = console.http.get(console.url, timeout=10).text
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page


def test_a_clock_that_is_wrong_by_a_day_hides_no_vm(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """A VM whose clock is a day off is heard when its record comes in."""
    for name, days in (("ahead", 1), ("behind", -1)):
        vm = FakeVm(name=name)
        moment = datetime.now(UTC) + timedelta(days=days)
        fleet.say(vm, vm.event(f"E-{name}", now=moment), vm.heartbeat(now=moment))
        eventually(lambda name=name: console.contacts().get(name) == "heard", what=name)  # type: ignore[misc]
        heard = datetime.fromisoformat(console.vms()[name]["lastHeardAt"])
        assert abs((datetime.now(UTC) - heard).total_seconds()) < 60


def test_a_vm_that_comes_back_with_another_name_is_the_same(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """A VM with a new name and the same vmId is one row, has the new name once it is accepted, and
    its event is found by that name.
    """
    vm = FakeVm(name="old-name")
    fleet.say(vm, vm.heartbeat())
    eventually(lambda: "old-name" in console.vms(), what="the old name")
    vm.name = "new-name"
    fleet.say(vm, vm.event("E-RENAMED"))
    eventually(lambda: "E-RENAMED" in console.events(), what="the event")
    assert console.vms().keys() >= {"old-name"}
    done = console.run("accept", vm.vm_id)
    assert done.returncode == 0, done.stderr
    eventually(lambda: "new-name" in console.vms(), what="the new name")
    assert "old-name" not in console.vms()
    assert console.events()["E-RENAMED"]["resources"][0]["vmId"] == vm.vm_id


def test_a_new_vm_with_an_old_name_is_another(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """Two VMs that had one name one after the other are two rows, each with its own events."""
    old = FakeVm(name="reborn", vm_id="11111111-0000-0000-0000-000000000001")
    new = FakeVm(name="reborn", vm_id="11111111-0000-0000-0000-000000000002")
    fleet.say(old, old.heartbeat())
    fleet.say(new, new.event("E-REBORN"))
    eventually(lambda: "E-REBORN" in console.events(), what="the event")
    assert console.events()["E-REBORN"]["resources"][0]["vmId"] == new.vm_id
    assert len(console.get("vms", q="reborn")["items"]) == 2


def test_a_scale_set_that_shrinks_leaves_no_alarm(
    console: ConsoleProcess, fleet: MqttFleet
) -> None:
    """A VM is retired that has stopped, has reported its deletion, and whose deletion a peer in its
    own scale set reports.
    """
    peer, gone = (FakeVm(name=f"shrink_{n}", scale_set="shrink") for n in range(2))
    twin = FakeVm(name="shrink_1", scale_set="another")
    for vm in (peer, gone, twin):
        fleet.say(vm, vm.heartbeat())
    kind = {"event_type": "Terminate", "impact": "delete", "resources": ["shrink_1"]}
    fleet.say(gone, gone.event("E-GONE", **kind), gone.stopped())  # type: ignore[arg-type]
    fleet.say(peer, peer.event("E-GONE", **kind))  # type: ignore[arg-type]
    eventually(lambda: "E-GONE" in console.events(), what="the event")
    assert console.events()["E-GONE"]["resources"][0]["vmId"] == gone.vm_id
    fleet.say(peer, peer.event("E-GONE", transition="ended", **kind))  # type: ignore[arg-type]
    by_id = lambda: {vm["vmId"]: vm["contact"] for vm in console.get("vms")["items"]}  # noqa: E731
    eventually(lambda: by_id()[gone.vm_id] == "retired", what="retired")
    assert by_id()[twin.vm_id] == "heard"


def test_a_week_that_is_repeated_changes_nothing(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """A second copy of every record changes nothing: no count, no event and no contact."""
    vm = FakeVm(name="repeated")
    records = [vm.started()]
    for number in range(40):
        records.append(vm.heartbeat())
        records.append(vm.event(f"R-{number}"))
        # The end is last: once it is seen, so is all that came before it.
        records.append(vm.event(f"R-{number}", transition="ended"))
    fleet.say(vm, *records)
    eventually(lambda: len(console.events(state="over", q="R-", limit=200)) == 40, what="over")
    before = console.vms()["repeated"]
    time.sleep(0.05)  # so that a contact by mistake would show
    marker = FakeVm(name="marker")
    fleet.say(vm, *records)
    fleet.say(marker, marker.heartbeat())
    eventually(lambda: "marker" in console.vms(), what="everything is read")
    assert console.vms()["repeated"] == before
    assert console.events(q="R-") == {}


def test_a_flood_of_garbage_stops_no_records(console: ConsoleProcess, fleet: MqttFleet) -> None:
    """Thousands of invalid messages are counted in limited memory, and records are still stored."""
    vm, noisy = FakeVm(name="calm"), FakeVm(name="noisy")
    before = quarantined(console, "not_json")
    for number in range(3000):
        fleet._client.publish(noisy.topic(), b"garbage %d" % number, 1)
    fleet.say(vm, vm.event("E-CALM"))
    eventually(lambda: "E-CALM" in console.events(), what="the record", timeout=60)
    assert quarantined(console, "not_json") == before + 3000
