"""The limits of one VM: over HTTPS an answer says when to send again, over MQTT the rest goes to
quarantine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto

from console.ingest.vm_limits import BURST_MINUTES, VmLimits
from console.records.parse import MAX_TAGS, ForeignError, parse_record


def test_a_minute_gives_back_what_a_minute_allows() -> None:
    """A VM may send ten minutes' worth at once, and then as much as each minute allows; each VM has
    its own allowance.
    """
    bounds = VmLimits(records=60, size=6000)
    for _ in range(60 * BURST_MINUTES):
        assert bounds.seconds_until_allowed("a", 10, now=0.0) == 0.0
    assert bounds.seconds_until_allowed("a", 10, now=0.0) == 1.0
    assert bounds.seconds_until_allowed("b", 10, now=0.0) == 0.0
    assert bounds.seconds_until_allowed("a", 10, now=1.0) == 0.0
    assert bounds.seconds_until_allowed("a", 10, now=1.0) == 1.0
    large = VmLimits(records=0, size=6000)
    assert large.seconds_until_allowed("a", 60_000, now=0.0) == 0.0
    assert large.seconds_until_allowed("a", 6000, now=0.0) == 60.0
    assert large.seconds_until_allowed("a", 6000, now=60.0) == 0.0


def test_an_excess_is_reported_once_a_minute() -> None:
    """A VM that sends too much is reported once a minute, so that its messages cost no writing."""
    bounds = VmLimits(records=1, size=0)
    assert [bounds.may_report("a", now=at) for at in (0.0, 1.0, 59.0, 61.0)] == [
        True,
        False,
        False,
        True,
    ]


def test_a_backlog_over_https_comes_through_within_its_bounds(tmp_path: Path) -> None:
    """A backlog above the limit is answered 429 with the seconds after which the same record is
    accepted, and no record is lost.
    """
    with ConsoleProcess(tmp_path, INTAKE__RECORDS="6") as console:
        vm, other = FakeVm(), FakeVm(name="other")
        answers = [console.post(vm.event(f"E-{number}")) for number in range(75)]
        refused = [each for each in answers if each.status_code != 204]
        assert refused
        assert {each.status_code for each in refused} == {429}
        assert all(1 <= int(each.headers["Retry-After"]) <= 60 for each in refused)
        assert console.post(other.heartbeat()).status_code == 204
        late = vm.event("late")
        eventually(
            lambda: console.post(late).status_code == 204, what="a later try is taken", timeout=60
        )


def test_names_of_events_count_among_what_a_vm_sends(tmp_path: Path) -> None:
    """The names in events, also in ended ones, count against the limit, because each becomes a
    row.
    """
    with ConsoleProcess(tmp_path, INTAKE__KIB="200") as console:
        vm, other = FakeVm(), FakeVm(name="other")
        names = [f"v{number:04}" for number in range(4999)]
        ended = {"resources": [*names, "web-1"], "transition": "ended"}
        answers = [console.post(vm.event(f"E-{number}", **ended)) for number in range(4)]  # type: ignore[arg-type]
        assert [each.status_code for each in answers] == [204, 204, 204, 429]
        assert int(answers[-1].headers["Retry-After"]) > 60
        assert console.post(other.event("E")).status_code == 204


def test_a_flood_over_mqtt_delays_no_other_vm(tmp_path: Path) -> None:
    """A VM's messages above the limit are acknowledged and counted; those of other VMs are
    stored.
    """
    with Mosquitto(tmp_path / "broker") as broker, MqttFleet(broker) as fleet:
        source = {
            "SOURCE__BROKER__KIND": "mqtt",
            "SOURCE__BROKER__HOST": broker.host,
            "SOURCE__BROKER__PORT": str(broker.port),
            "INTAKE__RECORDS": "10",
        }
        with ConsoleProcess(tmp_path / "console", **source) as console:
            eventually(lambda: _broker(console)["connected"], what="the connection")
            vm, other = FakeVm(), FakeVm(name="other")
            fleet.say(vm, *(vm.event(f"E-{number}") for number in range(200)))
            fleet.say(other, other.event("E", resources=["other"]))
            eventually(lambda: console.get("overview")["vms"]["total"] == 2, what="the other VM")
            (row,) = console.get("quarantine")["items"]
            assert row["reason"] == "too_much"
            assert _broker(console)["quarantined"] > 50
            assert 100 <= len(console.get("events?limit=1000")["items"]) <= 151


def _broker(console: ConsoleProcess) -> Any:
    """Return the source as the API shows it."""
    return next(each for each in console.get("overview")["sources"] if each["name"] == "broker")


def test_a_vm_has_a_bounded_number_of_tags() -> None:
    """A record with too many tags is refused, because groups compare each tag of each VM."""
    vm = FakeVm(name="tagged", tags={f"tag-{number}": "x" for number in range(MAX_TAGS)})
    assert parse_record(vm.heartbeat().body, source="web", received_at=time.time())
    vm.tags["one more"] = "x"
    with pytest.raises(ForeignError, match="at most 50"):
        parse_record(vm.heartbeat().body, source="web", received_at=time.time())
