"""Recommendations: an event with another status than `Scheduled` is news and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console.broker import held
from support.console.decision_bench import made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

RECOMMENDATION = {
    "status": "Advisory",
    "event_type": "SpotRebalanceRecommendation",
    "impact": "none",
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console with a key, and a VM that takes commands and reports a recommendation."""
    with ConsoleStage(tmp_path, KEY=str(made_key(tmp_path)[0])) as running:
        held(running)
        vm = FakeVm(name="spot-1")
        running.put(vm.heartbeat(now=running.now))
        running.takes_commands(vm)
        running.put(vm.event("E", now=running.now, not_before=running.moment(60), **RECOMMENDATION))
        yield running


def get(stage: ConsoleStage, path: str) -> Any:
    """Return what the API answers."""
    return stage.http.get(f"{stage.url}/api/v1/{path}", timeout=20).json()


def test_nothing_is_due_and_the_vm_stays_clear(stage: ConsoleStage) -> None:
    """The event is listed with Azure's word; no decision is due, and no VM expects anything."""
    (item,) = get(stage, "events?state=open")["items"]
    assert (item["eventStatus"], item["decision"]["state"]) == ("Advisory", "none")
    overview = get(stage, "overview")
    assert overview["decisionsDue"] == 0
    assert overview["conditions"] == {"clear": 1, "scheduled": 0, "started": 0}
    (vm,) = get(stage, "vms")["items"]
    assert (vm["condition"], vm["events"]) == ("clear", ["E"])


@pytest.mark.parametrize("verb", ["approve", "leave"])
def test_it_can_be_neither_approved_nor_left(stage: ConsoleStage, verb: str) -> None:
    """A decision on a recommendation is answered 409 with the reason, and nothing is signed."""
    fingerprint = get(stage, "events/E")["fingerprint"]
    body = {"fingerprint": fingerprint, "reason": "why not"}
    answer = stage.http.post(f"{stage.url}/api/v1/events/E/{verb}", json=body, timeout=20)
    assert answer.status_code == 409
    assert "nothing to decide" in answer.json()["error"]
    assert not [each for each in get(stage, "events/E")["timeline"] if each["kind"] == "command"]


def test_the_pages_say_what_it_means(stage: ConsoleStage) -> None:
    """The pages list a recommendation apart from scheduled events, and none says that it starts."""
    first, page = stage.page(), stage.page("/events/E")
    assert "News from Azure" in first
    assert "news from Azure that needs no decision" in first
    assert "Nothing is coming" in first
    assert "recommends to move its work elsewhere" in page
    assert "Only an event with the status Scheduled can be approved" in page
    assert "starts at its time" not in page
    assert "until it may start" not in first + page


def test_once_it_is_scheduled_a_decision_is_due(stage: ConsoleStage) -> None:
    """The same event with Azure's word `Scheduled` is an event like any other."""
    vm = FakeVm(name="spot-2")
    stage.put(vm.heartbeat(now=stage.now))
    stage.takes_commands(vm)
    stage.put(vm.event("F", now=stage.now, **RECOMMENDATION))
    stage.put(vm.event("F", transition="updated", now=stage.now, event_type="Preempt"))
    decisions = {
        each["eventId"]: each["decision"]["state"]
        for each in get(stage, "events?state=open")["items"]
    }
    assert decisions == {"E": "none", "F": "due"}
