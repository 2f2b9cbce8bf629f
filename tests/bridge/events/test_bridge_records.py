"""The records about the bridge itself."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from jsonschema import Draft202012Validator, FormatChecker
from support.documents.documents import NOW, VM

from bridge.events import bridge_records
from bridge.events.gaps import PollGap
from sinks.testing import SAMPLE_STREAM, sample_record
from wire.bridge import StoreReset
from wire.observer import BridgeRun, Node, Observer
from wire.record import CONTENT_TYPE, RecordDraft, seal
from wire.schema import schema

OBSERVER = Observer(
    vm=VM,
    node=Node(cluster=None, node="aks-1", pod=None),
    bridge=BridgeRun(version="1.2.3", instance_id="run-1", site="default"),
)
GAP = PollGap(
    seconds=61.23456,
    since=NOW - timedelta(seconds=61),
    is_long=True,
    is_continuous=False,
    reason="imds",
    restarted=False,
    pause_seconds=0.0,
)
VALIDATOR = Draft202012Validator(schema(), format_checker=FormatChecker())


def heartbeat() -> RecordDraft:
    """Return a heartbeat of a bridge that has not polled yet."""
    return bridge_records.heartbeat(
        OBSERVER, NOW, interval=60.0, polled_at=None, pending=0, last_sequence=0
    )


DRAFTS = [
    bridge_records.started(OBSERVER, NOW, sinks=["a", "b"], restarted=None, gap_seconds=None),
    bridge_records.started(OBSERVER, NOW, sinks=[], restarted=True, gap_seconds=3.00049),
    bridge_records.stopped(OBSERVER, NOW, reason="stopped"),
    heartbeat(),
    bridge_records.heartbeat(
        OBSERVER, NOW, interval=0.5, polled_at=NOW, pending=3, last_sequence=42
    ),
    *bridge_records.gap(OBSERVER, NOW, GAP),
    bridge_records.store_reset(
        OBSERVER, NOW, StoreReset(reason="damaged", previous_stream=None, kept_as="seb.db.1")
    ),
    bridge_records.dead_letter(
        OBSERVER, NOW, sink="ops", record=sample_record(7), reason="HTTP 400", attempts=5
    ),
]


@pytest.mark.parametrize("draft", DRAFTS, ids=lambda draft: draft.type)
def test_every_record_about_the_bridge_is_valid_and_a_cloudevent(draft: RecordDraft) -> None:
    """The schema describes each record about the bridge, formats included, and the cloudevents
    package reads it.
    """
    record = seal(draft, sequence=9, stream=SAMPLE_STREAM)
    VALIDATOR.validate(json.loads(record.body))
    message = HTTPMessage(headers={"content-type": CONTENT_TYPE}, body=record.body)
    assert from_http_event(message).get_data() == record.data


@pytest.mark.parametrize("draft", DRAFTS, ids=lambda draft: draft.type)
def test_every_record_about_the_bridge_names_its_observer(draft: RecordDraft) -> None:
    """Each record about the bridge has the VM, its node and the run, and no event."""
    assert (VM.resource_id, VM.vm_id, "bridge/run-1", NOW, "aks-1", False) == (
        draft.source,
        draft.partition_key,
        draft.subject,
        draft.time,
        draft.data["node"]["node"],
        "event" in draft.data,
    )


def test_a_gap_says_from_when_to_when() -> None:
    """A gap has its beginning, its end, and the reason why there were no polls."""
    (draft,) = bridge_records.gap(OBSERVER, NOW, GAP)
    assert draft.data["gap"] == {
        "from": "2026-03-02T09:58:59.000Z",
        "until": "2026-03-02T10:00:00.000Z",
        "seconds": 61.235,
        "reason": "imds",
    }


def test_a_short_gap_is_not_worth_a_record() -> None:
    """A short gap, such as a slow answer, has no record."""
    short = replace(GAP, seconds=2.0, is_long=False, is_continuous=True)
    assert bridge_records.gap(OBSERVER, NOW, short) == []


def test_a_dead_letter_names_the_record() -> None:
    """A dead letter has the refused record's id, type and place, and the reason."""
    record = sample_record(7)
    assert DRAFTS[-1].data["deadLetter"] == {
        "sink": "ops",
        "recordId": record.id,
        "recordType": record.type,
        "recordSequence": f"{7:020d}",
        "reason": "HTTP 400",
        "attempts": 5,
    }


def test_two_heartbeats_are_two_records() -> None:
    """Two heartbeats have different ids, from their places in the stream."""
    ids = {seal(heartbeat(), sequence=n, stream=SAMPLE_STREAM).id for n in (1, 2)}
    assert len(ids) == 2
