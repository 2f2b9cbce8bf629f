"""The scenarios of the simulator, step by step."""

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from support.documents.documents import FakeClock
from support.imds.client import approve, ask

from bridge.simulator.scenarios import SCENARIOS
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import SimulatedDocument
from bridge.simulator.vm import SimulatedVm, neighbour

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STILL = FakeClock(NOON)


def played(name: str, *, speed: float = 20_000, vm_name: str = "vm-0") -> list[dict[str, Any]]:
    """Return the documents of a scenario, played by a clock that stands still at noon."""
    simulator = Simulator(vm=SimulatedVm(name=vm_name), speed=speed, clock=STILL)
    simulator.play(name)
    assert simulator.wait(10)
    simulator.stop()
    return [document.json() for document in simulator.history]


def story(documents: list[dict[str, Any]]) -> list[tuple[int, list[str]]]:
    """Return the incarnation of each document, with its events' types and statuses."""
    return [
        (d["DocumentIncarnation"], [f"{e['EventType']} {e['EventStatus']}" for e in d["Events"]])
        for d in documents
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_step_comes_in_order_and_starts_no_sooner_than_its_notice(name: str) -> None:
    """The times of a scenario never go back, and no event starts before its last NotBefore."""
    due: dict[str, float] = {}
    last = 0.0
    for step in SCENARIOS[name].steps:
        assert step.at >= last
        last = step.at
        kind, event = type(step).__name__, getattr(step, "event", "")
        if kind == "Announce":
            due[event] = step.at + (getattr(step, "notice", 0) or 0)
        if kind == "Start":
            assert step.at >= due[event]


@pytest.mark.parametrize(
    ("name", "event_type", "source", "duration", "vms"),
    [
        ("live-migration", "Freeze", "Platform", 5, 2),
        ("host-maintenance", "Freeze", "Platform", 9, 1),
        ("user-reboot", "Reboot", "User", -1, 1),
        ("redeploy", "Redeploy", "Platform", -1, 1),
        ("user-redeploy", "Redeploy", "User", -1, 1),
        ("preempt", "Preempt", "Platform", -1, 1),
        ("terminate", "Terminate", "User", -1, 1),
        ("many-resources", "Freeze", "Platform", 9, 100),
    ],
)
def test_the_usual_life_of_an_event(
    name: str, event_type: str, source: str, duration: int, vms: int
) -> None:
    """An event is Scheduled, Started and gone under one EventId, and incarnations grow by one."""
    documents = played(name)
    scheduled, started = documents[1]["Events"][0], documents[2]["Events"][0]
    expected = [
        (1, []),
        (2, [f"{event_type} Scheduled"]),
        (3, [f"{event_type} Started"]),
        (4, []),
    ]
    assert expected == story(documents)
    assert {**scheduled, "EventStatus": "Started", "NotBefore": ""} == started
    assert (source, duration) == (scheduled["EventSource"], scheduled["DurationInSeconds"])
    assert (vms, "vm-0") == (len(scheduled["Resources"]), scheduled["Resources"][0])


def test_notice_is_compressed_with_the_rest() -> None:
    """At ten times the speed, 15 minutes of notice are 90 s of the bridge's clock."""
    simulator = Simulator(speed=10, clock=STILL, on_document=lambda _: announced.set())
    announced = threading.Event()
    simulator.play("host-maintenance")
    assert announced.wait(5)
    simulator.stop()
    document = simulator.history[-1].json()
    assert document["Events"][0]["NotBefore"] == "Sun, 01 Mar 2026 12:01:30 GMT"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "rebalance-recommendation",
            [
                *((2, ["SpotRebalanceRecommendation Advisory"]), (3, ["Preempt Scheduled"])),
                *((4, ["Preempt Started"]), (5, [])),
            ],
        ),
        ("canceled-maintenance", [(2, ["Redeploy Scheduled"]), (3, [])]),
        ("hardware-failure", [(2, ["Reboot Started"]), (3, [])]),
        ("skipped-incarnation", [(2, ["Reboot Scheduled"]), (4, [])]),
        (
            "incarnation-reset",
            [
                *((2, ["Freeze Scheduled"]), (3, ["Freeze Started"])),
                *((0, ["Reboot Scheduled"]), (1, ["Reboot Started"]), (2, [])),
            ],
        ),
    ],
)
def test_a_life_that_is_not_usual(name: str, expected: list[tuple[int, list[str]]]) -> None:
    """Scenarios have events that are canceled before their start, first seen as Started, never seen
    as Started, or shown under a new count of incarnations.
    """
    documents = played(name, speed=1000)
    assert story(documents) == [(1, []), *expected]
    assert (documents[1]["Events"][0]["NotBefore"] == "") == (name == "hardware-failure")


def test_two_events_are_of_different_vms() -> None:
    """Two events of different VMs are announced in one document, and then change independently."""
    documents = played("two-events", vm_name="db_0")
    assert story(documents) == [
        (1, []),
        (2, ["Reboot Scheduled", "Freeze Scheduled"]),
        (3, ["Reboot Scheduled", "Freeze Started"]),
        (4, ["Reboot Started", "Freeze Started"]),
        (5, ["Freeze Started"]),
        (6, []),
    ]
    assert [event["Resources"] for event in documents[1]["Events"]] == [["db_0"], ["db_1"]]


def test_notice_moves_there_and_back() -> None:
    """NotBefore changes from A to B and back to exactly A."""
    moved = threading.Event()
    told: list[str] = []

    def look(document: SimulatedDocument) -> None:
        told.append(document.json()["Events"][0]["NotBefore"][17:25])
        if len(told) == 3:
            moved.set()

    simulator = Simulator(speed=300, clock=STILL, on_document=look)
    simulator.play("notice-moved")
    assert moved.wait(5)
    simulator.stop()
    assert told[:3] == ["12:00:03", "12:00:05", "12:00:03"]


def test_an_approval_brings_the_rest_forward() -> None:
    """An approved event starts early, and the scenario does not wait for its NotBefore."""
    announced, started = threading.Event(), threading.Event()

    def look(document: SimulatedDocument) -> None:
        (started if b"Started" in document.body else announced).set()

    # At speed 50 the reboot would start after 18 s of its own accord.
    with Simulator(speed=50, on_document=look) as simulator:
        simulator.play("user-reboot")
        assert announced.wait(5)
        begun = time.monotonic()
        approve(simulator.url, simulator.history[-1].json()["Events"][0]["EventId"])
        assert started.wait(5)
        assert simulator.wait(10)
        took = time.monotonic() - begun
        assert [d.json()["DocumentIncarnation"] for d in simulator.history] == [1, 2, 3, 4]
    assert took < 15


def test_a_held_scenario_shows_every_document() -> None:
    """With `hold`, a slow poller gets every document, however fast the scenario is."""
    with Simulator(speed=1e6) as simulator:
        simulator.play("live-migration", hold=10)
        seen = []
        while not simulator.finished:
            seen.append(ask(simulator.url).json()["DocumentIncarnation"])
            simulator.wait(0.01)
    assert sorted(set(seen)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "expected"), [("db_0", "db_3"), ("vm9", "vm12"), ("db", "db-3"), ("7", "10")]
)
def test_neighbours_are_counted_on(name: str, expected: str) -> None:
    """The names of neighbours continue the number at the end of a name; a name without a number
    gets one.
    """
    assert expected == neighbour(name, 3)
