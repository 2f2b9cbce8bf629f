"""Filters of records: scope, types, this VM's events, heartbeats."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from support.eventually import eventually
from support.process.bridge import written
from support.process.launch import Launch

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

FOR_OTHERS = SimulatedEvent(resources=("vm-1",))


def test_a_sink_gets_what_it_asks_for(launch: Launch, simulator: Simulator) -> None:
    """One sink gets the types of its globs, one only this VM's events, and a third one
    everything.
    """
    ends, mine = launch.home / "ends", launch.home / "mine"
    bridge = launch(
        SEB_SINK__STDOUT__FORMAT="json",
        SEB_SINK__ENDS__KIND="file",
        SEB_SINK__ENDS__PATH=str(ends),
        SEB_SINK__ENDS__TYPES='["seb.event.ended.*", "seb.bridge.st?pped.v1"]',
        SEB_SINK__MINE__KIND="file",
        SEB_SINK__MINE__PATH=str(mine),
        SEB_SINK__MINE__AFFECTS_THIS_VM_ONLY="true",
    )
    bridge.wait_for_records(1)
    event = simulator.announce(SimulatedEvent())
    simulator.announce(FOR_OTHERS)
    bridge.wait_for_records(2, types="seb.event.scheduled")
    with simulator.change():
        simulator.end_event(event.event_id)
        simulator.end_event(FOR_OTHERS.event_id)
    bridge.wait_for_records(2, types="seb.event.ended")
    assert bridge.stop() == 0
    assert [r["type"].split(".")[2] for r in written(ends)] == ["ended", "ended", "stopped"]
    others = [r for r in bridge.records if r["subject"].endswith(FOR_OTHERS.event_id)]
    assert len(others) == 2
    assert written(mine) == [record for record in bridge.records if record not in others]


def test_who_got_the_announcement_gets_the_end(launch: Launch, simulator: Simulator) -> None:
    """If an event stops naming this VM, also over a restart, a sink of this VM's events gets that
    record, and a sink of announcements and ends gets the end.
    """
    mine, ends = launch.home / "mine", launch.home / "ends"
    sinks = {
        "SEB_SINK__MINE__KIND": "file",
        "SEB_SINK__MINE__PATH": str(mine),
        "SEB_SINK__MINE__AFFECTS_THIS_VM_ONLY": "true",
        "SEB_SINK__MINE__TYPES": '["seb.event.*"]',
        "SEB_SINK__ENDS__KIND": "file",
        "SEB_SINK__ENDS__PATH": str(ends),
        "SEB_SINK__ENDS__AFFECTS_THIS_VM_ONLY": "true",
        "SEB_SINK__ENDS__TYPES": '["seb.event.scheduled.*", "seb.event.ended.*"]',
    }
    event = simulator.announce(SimulatedEvent(resources=("vm-0", "vm-1")))
    bridge = launch(**sinks)
    bridge.wait_for_log("sink_up", count=2)
    bridge.kill()
    with simulator.change():
        simulator.end_event(event.event_id)
        simulator.announce(replace(event, resources=("vm-1",)))
    bridge = launch(**sinks)
    bridge.wait_for_log("event.updated")
    bridge.kill()
    with simulator.change():
        simulator.end_event(event.event_id)
        simulator.announce(replace(event, resources=("vm-1",), description="later"))
    bridge = launch(**sinks)
    bridge.wait_for_log("event.updated")
    simulator.end_event(event.event_id)
    bridge.wait_for_log("event.ended")
    assert bridge.stop() == 0

    def transitions_in(path: Path) -> list[tuple[str, bool]]:
        data = {each["id"]: each["data"] for each in written(path)}  # a kill may repeat one
        return [(each["transition"], each["affectsThisVm"]) for each in data.values()]

    assert transitions_in(mine) == [("scheduled", True), ("updated", False), ("ended", False)]
    assert transitions_in(ends) == [("scheduled", True), ("ended", False)]


def test_the_content_of_a_heartbeat(launch: Launch, simulator: Simulator) -> None:
    """A heartbeat has the interval, the last poll, the pending events, and the newest record's
    sequence.
    """
    simulator.announce(SimulatedEvent())
    bridge = launch(SEB_HEARTBEAT_INTERVAL="0.3")
    (event,) = bridge.wait_for_records(1, types="seb.event.")

    def later() -> list[dict[str, Any]]:
        beats = (each for each in bridge.records if "heartbeat" in each["type"])
        return [beat for beat in beats if beat["sequence"] > event["sequence"]]

    eventually(lambda: bool(later()), what="a heartbeat after the event")
    beat = later()[0]
    told = beat["data"]["heartbeat"]
    assert (told["intervalSeconds"], told["pendingEvents"]) == (0.3, 1)
    assert told["lastPollTime"] <= beat["time"]
    assert told["lastRecordSequence"] == event["sequence"]
