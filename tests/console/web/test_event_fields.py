"""A field of an event is in the API, in the spreadsheet and on the page."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from wire.event import EVENT_FIELDS, NOT_FINGERPRINTED, fingerprint
from wire.record import EVENT_SCHEDULED

RESOLVED = {"eventId", "resources"}
"""Fields that the console shows with what it knows itself."""
NOT_SHOWN = {"resourceType": "always VirtualMachine"}
EXAMPLES: dict[str, Any] = {
    "eventId": "E",
    "resources": ["web-1"],
    "notBefore": "2031-01-01T00:07:00Z",
    "durationInSeconds": 97,
}
ON_THE_PAGE = {"notBefore": "2031-01-01 00:07", "durationInSeconds": "1 min 37 s of interruption"}
"""What the page says for a value, where that is not the value itself."""


def example_of(name: str) -> Any:
    """Return a value that a record can have in a field, and that no other field has."""
    types = EVENT_FIELDS[name].type.schema.get("type", "string")
    value = 4711 if "integer" in types or "number" in types else f"value-of-{name}"
    return EXAMPLES.get(name, True if "boolean" in types else value)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console with one event that has a value in every field."""
    vm = FakeVm(name="web-1")
    with ConsoleStage(tmp_path) as made:
        sample = vm.event("E", resources=["web-1"], now=made.now).data
        data = {name: sample[name] for name in sample if name not in ("vm", "node", "bridge")}
        event = {name: example_of(name) for name in EVENT_FIELDS}
        data |= {"event": event, "fingerprint": fingerprint(event)}
        made.put(vm.record(EVENT_SCHEDULED, data, now=made.now))
        yield made


def test_a_field_of_an_event_is_in_the_api_and_in_the_spreadsheet(stage: ConsoleStage) -> None:
    """API and spreadsheet have the record's value of each field; a field that they leave out has a
    reason.
    """
    shown = EVENT_FIELDS.keys() - RESOLVED - NOT_SHOWN.keys()
    for path in ("events/E", "events"):
        answer = stage.http.get(f"{stage.url}/api/v1/{path}", timeout=20)
        assert answer.status_code == 200, (
            f"console/fleet/event_view.py, class EventItem: {answer.text}"
        )
        item = answer.json() if path == "events/E" else answer.json()["items"][0]
        assert {name: item[name] for name in shown} == {name: example_of(name) for name in shown}
    lines = stage.http.get(f"{stage.url}/api/v1/events?format=csv", timeout=20).text.splitlines()
    (row,) = csv.DictReader(lines)
    assert {name: row[name] for name in shown} == {name: str(example_of(name)) for name in shown}


def test_a_field_of_an_event_is_on_its_page(stage: ConsoleStage) -> None:
    """The event's page has each field, unchanged or in words; a field that it leaves out has a
    reason.
    """
    answer = stage.http.get(f"{stage.url}/events/E", timeout=20)
    assert answer.status_code == 200, answer.text
    page = answer.text
    wanted = {
        name: ON_THE_PAGE.get(name, str(example_of(name)))
        for name in EVENT_FIELDS
        if name not in NOT_SHOWN
    }
    wanted["resources"] = "web-1"
    missing = [name for name, text in wanted.items() if text not in page]
    assert missing == [], "console/web/pages/templates/event.html has no line for these"


@pytest.mark.parametrize("name", NOT_FINGERPRINTED)
def test_two_vms_that_differ_in_a_field_outside_of_the_fingerprint_are_shown(
    tmp_path: Path, name: str
) -> None:
    """The event is marked as differing, and says which VM reports what."""
    first, second = FakeVm(name="web-1"), FakeVm(name="web-2")
    with ConsoleStage(tmp_path) as stage:
        one = example_of(name)
        other = one + 1 if isinstance(one, int) else f"{one}, too"
        for vm, value in ((first, one), (second, other)):
            record = vm.event("E", resources=["web-1", "web-2"], now=stage.now)
            event = {**record.data["event"], name: value}
            stage.put(vm.record(EVENT_SCHEDULED, {**record.data, "event": event}, now=stage.now))
        item = stage.http.get(f"{stage.url}/api/v1/events/E", timeout=20).json()
    assert item["differing"]
    differences = [each for reporter in item["witnesses"] for each in reporter["differences"]]
    assert [each["field"] for each in differences] == [name]
