"""Records that come in: valid ones are read into values, others are refused."""

import json
from typing import Any

import pytest

from sinks.samples import SAMPLE_VM, sample_record, sample_records
from wire.event import EventData, fingerprint
from wire.fields import read_object
from wire.observer import BridgeRun, Observer
from wire.preparation import PreparationData
from wire.record import DATA_OF, Record, RecordError, check_record, read_record


@pytest.mark.parametrize("record", sample_records(), ids=lambda record: record.type)
def test_every_kind_of_record_is_read_into_values(record: Record) -> None:
    """`check_record` returns the record that `read_record` returns, and the values that its data
    was made from.
    """
    found, data = check_record(record.body)
    assert found == record == read_record(record.body)
    assert type(data) is DATA_OF[record.type]
    assert data.to_wire() == record.data
    assert data.vm == SAMPLE_VM


def changed(*path: str, to: Any) -> bytes:
    """A record that was changed after it was sealed."""
    record = json.loads(sample_record().body)
    node = record
    for name in path[:-1]:
        node = node[name]
    if to is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = to
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (changed("data", "observation", "noticeSeconds", to=float("nan")), "wrong_type"),
        (changed("data", "observation", "noticeSeconds", to=float("inf")), "wrong_type"),
        (b"[]", "wrong_type"),
        (changed("time", to="today"), "wrong_type"),
        (changed("sequence", to="1"), "wrong_type"),
        (changed("sequence", to="9" * 20), "wrong_type"),
        (changed("stream", to=...), "missing_field"),
        (changed("source", to=...), "missing_field"),
        (changed("type", to="org.example.v1"), "unknown_type"),
        (changed("type", to="seb.event.scheduled.v2"), "newer_version"),
        (changed("dataschema", to="urn:other"), "newer_version"),
        (changed("partitionkey", to="another"), "foreign_vm"),
        (changed("data", "vm", "vmId", to="a/b"), "wrong_type"),
        (changed("data", "event", "resources", to=["another"]), "wrong_type"),
        (changed("data", "revision", to=...), "missing_field"),
    ],
)
def test_an_invalid_record_is_refused_with_one_word(body: bytes, reason: str) -> None:
    """An invalid record is refused with a word for a metric and a message for a person."""
    with pytest.raises(RecordError) as caught:
        check_record(body)
    assert caught.value.reason == reason


def test_a_newer_bridge_is_understood_as_far_as_it_is_known() -> None:
    """Unknown fields are ignored, unknown words are accepted, and of an unknown type the observer
    is read.
    """
    _, data = check_record(changed("data", "event", "newField", to=1))
    assert isinstance(data, EventData)
    _, data = check_record(changed("data", "impact", to="teleport"))
    assert isinstance(data, EventData)
    assert data.impact == "teleport"
    _, data = check_record(changed("type", to="seb.other.v1"))
    assert type(data) is Observer


def test_the_cause_of_a_preparation_names_a_whole_jti() -> None:
    """The cause of a preparation has room for a word and a jti of 512 characters."""
    cause = f"command:{'j' * 512}"
    data = PreparationData(
        vm=SAMPLE_VM,
        node=None,
        bridge=BridgeRun(version="1", instance_id="run"),
        evt="E-1",
        evh=f"sha256:{0:064x}",
        sink="drain",
        cause=cause,
        state="preparing",
        reason=None,
    )
    assert read_object(PreparationData, data.to_wire()) == data


@pytest.mark.parametrize(
    ("name", "value"),
    [("durationInSeconds", -1), ("notBefore", "2026-03-01T12:15:00.000Z"), ("notBefore", None)],
)
def test_the_fingerprint_is_checked_as_it_was_sent(name: str, value: Any) -> None:
    """The fingerprint is checked with the sender's own spelling of a moment or of an unknown
    duration.
    """
    event = {**json.loads(sample_record().body)["data"]["event"], name: value}
    record = json.loads(changed("data", "event", name, to=value))
    record["data"]["fingerprint"] = fingerprint(event)
    _, data = check_record(json.dumps(record).encode())
    assert isinstance(data, EventData)


def test_an_odd_raw_value_refuses_no_record() -> None:
    """A `raw` that is not IMDS's object is left out, and the record is accepted."""
    _, data = check_record(changed("data", "raw", to="text"))
    assert isinstance(data, EventData)
    assert data.raw == {}
