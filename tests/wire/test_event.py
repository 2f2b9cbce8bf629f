"""An event on the wire, and its fingerprint."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sinks.samples import sample_event, sample_record
from wire.event import EVENT_FIELDS, FINGERPRINTED, Event, EventData, azure_name, fingerprint
from wire.fields import Field, FieldError, fields_of, read_object

EVENT = sample_event(resources=("b", "a"))


def test_every_attribute_of_an_event_is_on_the_wire() -> None:
    """Every attribute of the class `Event` has a type and a meaning, so that it is in the
    record.
    """
    assert [each.name for each in fields(Event)] == [each.attribute for each in fields_of(Event)]
    assert [name for name, field in EVENT_FIELDS.items() if not field.doc] == []


def test_an_event_reads_what_it_wrote() -> None:
    """An event that is written and read again is equal, also with a fraction in its moments."""
    late = replace(EVENT, not_before=datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC))
    for event in (EVENT, late, replace(EVENT, not_before=None, duration_in_seconds=None)):
        assert event == read_object(Event, event.to_wire())


def test_the_fingerprint_is_computed_as_in_earlier_versions() -> None:
    """The fingerprint of a fixed event is the one of earlier versions: another one would void
    approvals that are under way.
    """
    assert set(FINGERPRINTED) == {
        "eventId",
        "eventType",
        "resourceType",
        "resources",
        "eventStatus",
        "notBefore",
        "eventSource",
        "durationInSeconds",
    }
    assert EVENT.fingerprint == fingerprint(EVENT.to_wire())
    assert EVENT.fingerprint == (
        "sha256:82166ae8a1c5b06f29deb2f3d3127547227ce76ac165afeeb9ccaf626a42f132"
    )


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"resources": ("a", "b")}, True),
        ({"description": "other words"}, True),
        ({"event_type": "Reboot"}, False),
        ({"resource_type": None}, False),
        ({"resources": ("a",)}, False),
        ({"event_status": "Started"}, False),
        ({"not_before": None}, False),
        ({"event_source": "User"}, False),
        ({"duration_in_seconds": 9}, False),
    ],
)
def test_what_the_fingerprint_covers(change: dict[str, Any], *, is_same: bool) -> None:
    """The fingerprint changes with every field that an approver must have seen, and not with the
    description or the order of the VMs.
    """
    assert is_same == (replace(EVENT, **change).fingerprint == EVENT.fingerprint)


def test_azure_writes_the_same_names_with_a_capital() -> None:
    """The name of a field in IMDS's document is its name on the wire with a capital letter."""
    assert azure_name("durationInSeconds") == "DurationInSeconds"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"eventId": 7}, "event.eventId"),
        ({"eventId": ""}, "event.eventId"),
        ({"eventStatus": ""}, "event.eventStatus"),
        ({"resources": ["a", 1]}, "event.resources.1"),
        ({"resources": "a"}, "event.resources"),
        ({"durationInSeconds": True}, "event.durationInSeconds"),
        ({"durationInSeconds": -2}, "event.durationInSeconds"),
        ({"durationInSeconds": 2**63}, "event.durationInSeconds"),
        ({"notBefore": "2026-03-01T12:15:00"}, "event.notBefore"),
        ({"notBefore": "soon"}, "event.notBefore"),
        ({"description": "x" * 20_001}, "event.description"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], path: str) -> None:
    """The error about a wrong field names its path in the record."""
    data = sample_record().data
    with pytest.raises(FieldError) as caught:
        read_object(EventData, {**data, "event": {**data["event"], **change}})
    assert (caught.value.path, caught.value.is_missing) == (path, False)


def test_a_missing_field_is_null_where_it_may_be() -> None:
    """A missing field is read as null if it may be null; a missing eventId is an error."""
    wire = EVENT.to_wire()
    del wire["durationInSeconds"]
    assert read_object(Event, {**wire, "new": 1}) == replace(EVENT, duration_in_seconds=None)
    del wire["eventId"]
    with pytest.raises(FieldError) as caught:
        read_object(Event, wire)
    assert (caught.value.path, caught.value.is_missing) == ("eventId", True)


def test_a_field_says_what_it_is() -> None:
    """The definition of a field has its name, type and meaning, for other code to read."""
    assert isinstance(EVENT_FIELDS["eventType"], Field)
    assert EVENT_FIELDS["eventType"].type.is_nullable
