"""The envelope of a record, for every kind of record."""

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError

from sinks.testing import (
    BRIDGE_TYPES,
    EVENT_TYPES,
    SAMPLE_TIME,
    SAMPLE_VM,
    sample_heartbeat,
    sample_record,
    sample_records,
)
from wire.moment import rfc3339
from wire.record import (
    CONTENT_TYPE,
    EVENT_ENDED,
    EVENT_SCHEDULED,
    Record,
    RecordDraft,
    RecordError,
    event_record_id,
    read_record,
    seal,
)
from wire.schema import schema
from wire.strictjson import canonical_json
from wire.vm import VmIdentity

VALIDATOR = Draft202012Validator(schema(), format_checker=FormatChecker())


@pytest.mark.parametrize("record", sample_records(), ids=lambda record: record.type)
def test_every_kind_of_record_is_a_cloudevent(record: Record) -> None:
    """The schema that ships with the package describes each sample record, and the cloudevents
    package reads it, extensions included.
    """
    VALIDATOR.validate(json.loads(record.body))
    message = HTTPMessage(headers={"content-type": CONTENT_TYPE}, body=record.body)
    event = from_http_event(message)
    assert (event.get_id(), event.get_type(), event.get_source(), event.get_data()) == (
        record.id,
        record.type,
        record.source,
        record.data,
    )
    assert event.get_extension("sequence") == f"{record.sequence:020d}"


def test_the_schema_is_a_schema_of_every_kind() -> None:
    """The schema is valid, and every type that it describes has a sample record."""
    Draft202012Validator.check_schema(schema())
    kinds = schema()["properties"]["type"]["enum"]
    assert kinds[: len(EVENT_TYPES)] == list(EVENT_TYPES)
    assert {*EVENT_TYPES, *BRIDGE_TYPES} <= set(kinds)


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "seb.event.other.v1"},
        {"time": "2026-03-01T12:00:00Z"},
        {"sequence": "1"},
        {"more": 1},
        {"data": {}},
    ],
)
def test_the_schema_refuses_an_invalid_record(broken: dict[str, Any]) -> None:
    """A consumer that validates a record against the schema finds wrong and superfluous values."""
    with pytest.raises(ValidationError):
        VALIDATOR.validate(json.loads(sample_record().body) | broken)


def test_text_is_utf8_and_not_escaped() -> None:
    """Descriptions are written in UTF-8, without escapes for their letters."""
    assert (
        "Wartung \u2013 \u7dad\u8b77".encode()
        in sample_record(description="Wartung \u2013 \u7dad\u8b77").body
    )


def test_a_draft_without_an_id_gets_one_from_its_place_and_content() -> None:
    """A draft with the same place and content gets the same id; with another place or content it
    gets another id.
    """
    ids = {(n, sample_heartbeat(n).id) for n in (1, 2, 1)}
    other = sample_heartbeat(1, vm=replace(SAMPLE_VM, name="another"))
    assert len(ids) == len({each for _, each in ids}) == 2
    assert (other.sequence, other.stream) == (1, sample_heartbeat(1).stream)
    assert other.id not in {each for _, each in ids}


def test_the_time_distinguishes_later_revisions() -> None:
    """Later revisions have the time in their ids. The first revision has not: a bridge whose store
    was lost sees it again later.
    """
    fact = {"vm_id": "v", "event_id": "E", "transition": "updated", "fingerprint": "sha256:0"}
    times = (SAMPLE_TIME, SAMPLE_TIME + timedelta(milliseconds=1))

    def ids(revision: int) -> set[str]:
        return {event_record_id(**fact, revision=revision, now=now) for now in times}

    assert (len(ids(1)), len(ids(2)), ids(2) & ids(3)) == (1, 2, set())


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b"\xff", b'{"id": 1}', b"[" * 100_000],
)
def test_invalid_bytes_are_a_record_error(body: bytes) -> None:
    """Bytes that are not a record raise `RecordError`, whatever they are."""
    with pytest.raises(RecordError, match="not a record"):
        read_record(body)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (SAMPLE_TIME, "2026-03-01T12:00:00.000Z"),
        (SAMPLE_TIME.replace(microsecond=999_999), "2026-03-01T12:00:00.999Z"),
        (datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1))), "2026-03-01T12:00:00.000Z"),
    ],
)
def test_times_are_utc_with_milliseconds(moment: datetime, expected: str) -> None:
    """A time is written in UTC with milliseconds, whatever its zone; a time without a zone is
    refused.
    """
    assert expected == rfc3339(moment)
    with pytest.raises(ValueError, match="time zone"):
        rfc3339(moment.replace(tzinfo=None))


def test_canonical_json() -> None:
    """A JSON value is written in one form: sorted keys, no white space, UTF-8; a value without such
    a form is refused.
    """
    assert canonical_json({"b": [1, None], "a": "\u2013"}) == '{"a":"\u2013","b":[1,null]}'.encode()
    for value in (math.nan, math.inf, "\ud800"):
        with pytest.raises(ValueError):
            canonical_json(value)


def test_an_identity_survives_the_wire() -> None:
    """`VmIdentity.from_wire` reads what `to_wire` wrote."""
    vm = replace(SAMPLE_VM, tags={"env": "prod"}, zone="1")
    assert vm == VmIdentity.from_wire(vm.to_wire())


@pytest.mark.parametrize(
    ("vm", "expected"),
    [
        (SAMPLE_VM, SAMPLE_VM.resource_id),
        (VmIdentity(vm_id="x", name="db-0"), "urn:uuid:x"),
    ],
)
def test_the_source_names_the_vm(vm: VmIdentity, expected: str) -> None:
    """The source of a record is the ARM id, or a URN of the vmId if IMDS gives no ARM id."""
    assert expected == vm.source


@pytest.mark.parametrize(
    ("record", "event_id", "affects", "end", "heartbeat"),
    [
        (sample_record(1, event_id="A"), "A", True, False, False),
        (sample_record(1, event_id="A", record_type=EVENT_ENDED), "A", True, True, False),
        (sample_record(1, event_id="A", resources=["x"]), "A", False, True, False),
        (sample_heartbeat(), None, None, False, True),
    ],
)
def test_a_record_has_the_facts_by_which_sinks_route(
    record: Record, event_id: str | None, affects: bool | None, end: bool, heartbeat: bool
) -> None:
    """A record has its event's id, whether it affects this VM, whether the event is over for this
    VM, and whether it is a heartbeat.
    """
    assert (record.event_id, record.affects_this_vm) == (event_id, affects)
    assert (record.is_end, record.is_heartbeat) == (end, heartbeat)


def test_a_draft_with_nan_is_refused() -> None:
    """A draft with NaN is refused, because no parser would read the record."""
    draft = RecordDraft(
        type=EVENT_SCHEDULED,
        source="x",
        subject="x",
        time=SAMPLE_TIME,
        partition_key="x",
        data={"x": math.nan},
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal(draft, sequence=1, stream="x")
