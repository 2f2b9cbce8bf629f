"""The record of a transition, field by field."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from jsonschema import Draft202012Validator, FormatChecker
from support.documents.documents import EVENT_ID, NOW, VM, body, entry, started

from bridge.events.diff import PollContext, Transition, diff
from bridge.events.normalize import normalize, pending_event
from bridge.events.tracked import Measured
from bridge.imds.document import parse_document
from wire.observer import BridgeRun, Node, Observer
from wire.record import CONTENT_TYPE, RecordDraft, event_record_id, seal
from wire.schema import schema
from wire.state import PendingEvent
from wire.vm import VmIdentity

VALIDATOR = Draft202012Validator(schema(), format_checker=FormatChecker())
OBSERVER = Observer(
    vm=VM, node=None, bridge=BridgeRun(version="1.2.3", instance_id="run-1", site="plant")
)
POLL = PollContext(
    now=NOW,
    vm_name=VM.name,
    gap_seconds=1.00049,
    is_continuous=True,
    is_boot_known=True,
    latency_ms=3.14159,
    incarnation=7,
    previous_incarnation=5,
)
STREAM = "9a7c2b1e-6f40-4f51-8a3d-2e1f0c9b8a70"


def appeared(raw: dict[str, Any], poll: PollContext = POLL) -> Transition:
    """Return the transition by which an entry is first seen."""
    (transition,) = diff({}, parse_document(body(raw)), poll)
    return transition


def then(before: Transition, *entries: object, poll: PollContext = POLL) -> Transition:
    """Return the transition that follows one, by a document of these entries."""
    known = {before.tracked.event.key: before.tracked}
    (transition,) = diff(known, parse_document(body(*entries)), poll)
    return transition


def record(
    transition: Transition, poll: PollContext = POLL, observer: Observer = OBSERVER
) -> RecordDraft:
    """Return the record of a transition."""
    return normalize(transition, observer, poll)


def every_transition() -> list[Transition]:
    """Return one transition of each kind, and some odd ones."""
    first = appeared(entry())
    return [
        first,
        then(first, entry(description="")),
        then(first, started()),
        then(first),
        appeared(started()),
        appeared({"EventId": "odd \ufffd\0 id"}),
        appeared(entry(not_before="0001-01-01T00:00:00Z", duration=0, event_type="Levitate")),
        appeared({"EventId": "x", **dict.fromkeys(entry(), 5), "Resources": 5} | {"EventId": "x"}),
    ]


def test_every_field_of_a_record() -> None:
    """Every field of a record has the value that was computed by hand."""
    raw = entry(resources=["WEB_3", "web_4"])
    draft = record(appeared(raw))
    assert {
        "vm": {
            "vmId": VM.vm_id,
            "name": "web_3",
            "resourceId": VM.resource_id,
            "subscriptionId": VM.subscription_id,
            "resourceGroup": "shop",
            "location": "northeurope",
            "zone": "2",
            "scaleSet": "web",
            "faultDomain": "1",
            "updateDomain": "4",
            "osType": "Linux",
            "vmSize": "Standard_D4s_v5",
            "tags": {"owner": "shop-team"},
        },
        "node": None,
        "transition": "scheduled",
        "event": {
            "eventId": EVENT_ID,
            "eventType": "Freeze",
            "resourceType": "VirtualMachine",
            "resources": ["WEB_3", "web_4"],
            "eventStatus": "Scheduled",
            "notBefore": "2026-03-02T10:15:00Z",
            "description": "Host server is undergoing maintenance.",
            "eventSource": "Platform",
            "durationInSeconds": 9,
        },
        "affectsThisVm": True,
        "concernsThisVm": True,
        "impact": "pause",
        "revision": 1,
        "fingerprint": draft.data["fingerprint"],
        "document": {"incarnation": 7, "previousIncarnation": 5},
        "observation": {"noticeSeconds": 900.0, "gapSeconds": 1.0, "latencyMs": 3.142},
        "raw": raw,
        "bridge": {"version": "1.2.3", "instanceId": "run-1", "site": "plant"},
    } == draft.data


def test_the_envelope_is_made_of_the_identity() -> None:
    """Type, source, subject, time and partition key follow from the identity and the transition."""
    draft = record(appeared(entry()))
    assert (draft.type, draft.subject) == ("seb.event.scheduled.v1", f"scheduledEvents/{EVENT_ID}")
    assert (draft.source, draft.partition_key, draft.time) == (VM.resource_id, VM.vm_id, NOW)


def test_the_source_is_a_urn_where_there_is_no_arm_id() -> None:
    """Without an ARM id, as for a classic VM, the source is a URN."""
    observer = replace(OBSERVER, vm=VmIdentity(vm_id="1-2", name="web_3"))
    assert record(appeared(entry()), observer=observer).source == "urn:uuid:1-2"


def test_the_id_of_a_first_record_is_made_of_five_facts() -> None:
    """The id of a first record follows from five facts about the event, and not from the time."""
    draft = record(appeared(entry()))
    assert draft.id == event_record_id(
        vm_id=VM.vm_id.upper(),
        event_id=EVENT_ID,
        transition="scheduled",
        revision=1,
        fingerprint=draft.data["fingerprint"],
        now=datetime(2030, 1, 1, tzinfo=UTC),
    )


def test_two_vms_report_one_event_with_two_ids_and_one_fingerprint() -> None:
    """The records of two VMs about one event have the same fingerprint and different ids."""
    other = replace(OBSERVER, vm=replace(VM, vm_id="another", name="web_4"))
    ours, theirs = record(appeared(entry())), record(appeared(entry()), observer=other)
    assert ours.id != theirs.id
    assert ours.data["fingerprint"] == theirs.data["fingerprint"]


@pytest.mark.parametrize("transition", every_transition(), ids=lambda each: each.kind)
def test_every_record_is_valid_and_a_cloudevent(transition: Transition) -> None:
    """The schema describes each record, formats included, and the cloudevents package reads it."""
    sealed = seal(record(transition), sequence=1, stream=STREAM)
    VALIDATOR.validate(json.loads(sealed.body))
    message = HTTPMessage(headers={"content-type": CONTENT_TYPE}, body=sealed.body)
    event = from_http_event(message)
    assert (event.get_id(), event.get_type()) == (sealed.id, sealed.type)
    assert event.get_data() == sealed.data


def test_an_update_names_its_changes() -> None:
    """Only the record of an update has the list of changed fields."""
    drafts = [record(each) for each in every_transition()]
    assert {draft.data["transition"]: "changed" in draft.data for draft in drafts} == {
        "updated": True,
        "scheduled": False,
        "started": False,
        "ended": False,
    }


def test_an_end_tells_how_and_keeps_the_last_sight() -> None:
    """The status of an end is how it ended, and `raw` is the last entry unchanged."""
    data = record(then(appeared(started()))).data
    assert (data["event"]["eventStatus"], data["revision"]) == ("Completed", 2)
    assert data["raw"]["EventStatus"] == "Started"


def test_only_a_start_and_an_end_tell_what_was_measured() -> None:
    """Only records of a start and an end have the measured pause and downtime, in seconds."""
    first = appeared(entry())
    what = Measured(pause_seconds=4.5, restarted=True, downtime_seconds=61.0)
    known = replace(first, tracked=replace(first.tracked, measured=what))
    expected = {"pauseSeconds": 4.5, "restarted": True, "downtimeSeconds": 61.0}
    for transition in (then(known, started()), then(known)):
        assert expected.items() <= record(transition).data["observation"].items()
    assert not expected.keys() & record(then(known, entry(source=""))).data["observation"].keys()


def test_the_notice_of_a_started_event_is_that_of_its_last_date() -> None:
    """A started event, whose NotBefore is blank, keeps its notice."""
    later = replace(POLL, now=NOW + timedelta(seconds=900))
    data = record(then(appeared(entry()), started(), poll=later), later).data
    assert (data["event"]["notBefore"], data["observation"]["noticeSeconds"]) == (None, 900.0)


def test_without_a_date_there_is_no_notice() -> None:
    """A NotBefore that cannot be read gives null for date and notice, and its text is in `raw`."""
    data = record(appeared(entry(not_before="in a while"))).data
    assert (data["event"]["notBefore"], data["observation"]["noticeSeconds"]) == (None, None)
    assert data["raw"]["NotBefore"] == "in a while"


def test_the_very_first_look_ends_no_gap() -> None:
    """The first record of a bridge has no gap."""
    poll = replace(POLL, gap_seconds=None, latency_ms=None, previous_incarnation=None)
    assert record(appeared(entry(), poll), poll).data["observation"] == {
        "noticeSeconds": 900.0,
        "gapSeconds": None,
        "latencyMs": None,
    }


def test_a_configured_place_in_a_cluster() -> None:
    """A record has the configured cluster, node and pod."""
    observer = replace(OBSERVER, node=Node(cluster="prod", node="aks-1", pod=None))
    assert observer.to_wire()["node"] == {"cluster": "prod", "node": "aks-1", "pod": None}


def test_a_pending_event_is_the_short_form_of_its_record() -> None:
    """A pending event on the state topic has the values of its record."""
    transition = appeared(entry())
    draft = record(transition)
    assert PendingEvent(
        record_id=draft.id or "",
        event=transition.tracked.event,
        affects_this_vm=True,
        impact="pause",
        revision=1,
        fingerprint=draft.data["fingerprint"],
    ) == pending_event(replace(transition.tracked, record_id=draft.id or ""))


def test_an_id_is_the_same_in_every_version() -> None:
    """The id of a fixed fact is the same in every version, so that no old fact gets a new id."""
    observer = replace(OBSERVER, vm=VmIdentity(vm_id="vm", name="web_3"))
    poll = replace(POLL, now=datetime(2030, 1, 1, tzinfo=UTC))
    raw = entry("GOLDEN", not_before="Mon, 02 Mar 2026 10:15:00 GMT")
    assert record(appeared(raw, poll), poll, observer).id == "5acd5a9f-b8ec-594e-b114-2362245b4d41"
