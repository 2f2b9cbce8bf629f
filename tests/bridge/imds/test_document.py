"""The document of IMDS, read into events."""

import hashlib
import itertools
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents.documents import EVENT_ID, body, entry, started, without

from bridge.imds.document import (
    DocumentError,
    ScheduledEvent,
    parse_document,
    parse_event,
    parse_moment,
)
from wire.event import EVENT_FIELDS, azure_name, fingerprint
from wire.moment import moment_text
from wire.strictjson import MAX_DEPTH, canonical_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = sorted(entry())


def only(document: bytes) -> ScheduledEvent:
    """Return the one event of a document."""
    (event,) = parse_document(document).events.values()
    return event


def parsed(**fields: object) -> ScheduledEvent:
    """Return a full entry as it is read, with some of Azure's fields replaced."""
    return parse_event(entry() | fields)


def test_a_full_entry_is_read_whole() -> None:
    """Every field of the newest api-version is read, with Azure's values."""
    raw = entry(resources=["web_3", "web_4"])
    assert only(body(raw)).to_wire() == {
        "eventId": EVENT_ID,
        "eventType": "Freeze",
        "resourceType": "VirtualMachine",
        "resources": ["web_3", "web_4"],
        "eventStatus": "Scheduled",
        "notBefore": "2026-03-02T10:15:00Z",
        "description": "Host server is undergoing maintenance.",
        "eventSource": "Platform",
        "durationInSeconds": 9,
    }


@pytest.mark.parametrize("name", EVENT_FIELDS)
def test_each_field_of_an_event_is_read(name: str) -> None:
    """The value of each field of IMDS's entry becomes a value of the event."""
    unread = parse_event({"EventId": EVENT_ID}).to_wire()[name]
    said: list[object] = ["value", "2026-03-02T10:15:00Z", 7, True, ["value"], {"value": 7}]
    read = [parse_event({"EventId": "E", azure_name(name): each}).to_wire()[name] for each in said]
    assert [each for each in read if each != unread]


def test_the_raw_entry_is_kept_as_it_came() -> None:
    """`raw` keeps unknown fields, the order and the types of the entry."""
    raw = {"Zeta": [1, 2.5, {"x": None}], **entry(), "NotBefore": "whenever", "Alpha": True}
    assert list(raw.items()) == list(only(body(raw)).raw.items())


def test_an_event_id_alone_is_enough() -> None:
    """All fields but EventId may be missing, and are then null, an empty list, or Unknown."""
    assert only(body({"EventId": "x"})).to_wire() == {
        "eventId": "x",
        "eventType": None,
        "resourceType": None,
        "resources": [],
        "eventStatus": "Unknown",
        "notBefore": None,
        "description": None,
        "eventSource": None,
        "durationInSeconds": None,
    }


@pytest.mark.parametrize("incarnation", [0, 1, 279])
def test_an_empty_document_has_its_incarnation(incarnation: int) -> None:
    """An empty document has an incarnation, which may be any number."""
    assert incarnation == parse_document(body(incarnation=incarnation)).incarnation


@pytest.mark.parametrize("odd", [None, "2", True, 1.5, [], 10**300])
def test_an_odd_incarnation_is_null(odd: object) -> None:
    """An incarnation that is not a number, or too large, is null and no error."""
    assert parse_document(body(entry(), incarnation=odd)).incarnation is None


def test_the_oldest_api_version_is_read() -> None:
    """The document of 2017-03-01, with few fields and an underscore before each name, is read."""
    old = without(entry(), "Description", "EventSource", "DurationInSeconds")
    event = only(body(old | {"Resources": ["_web_3"]}, incarnation=None))
    assert (event.resources, event.affects("web_3")) == (("web_3",), True)


def test_a_started_event_has_no_not_before() -> None:
    """The blank NotBefore of a started event is null."""
    event = only(body(started()))
    assert (event.event_status, event.not_before) == ("Started", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon, 11 Apr 2022 22:26:58 GMT", "2022-04-11T22:26:58Z"),
        ("Sun, 11 Apr 2022 22:26:58 GMT", "2022-04-11T22:26:58Z"),
        ("Blursday, 11 Apr 2022 22:26:58 GMT", "2022-04-11T22:26:58Z"),
        ("Fri, 1 May 2026 02:03:04 GMT", "2026-05-01T02:03:04Z"),
        ("01 May 2026 02:03:04", "2026-05-01T02:03:04Z"),
        ("Fri, 01 May 2026 02:03:04 +0200", "2026-05-01T00:03:04Z"),
        ("  Fri, 01 May 2026 02:03:04 gmt ", "2026-05-01T02:03:04Z"),
        ("2026-11-21T00:37:41Z", "2026-11-21T00:37:41Z"),
        ("2026-11-21t00:37:41z", "2026-11-21T00:37:41Z"),
        ("2026-11-21T00:37:41+01:00", "2026-11-20T23:37:41Z"),
        ("2026-11-21T00:37:41", "2026-11-21T00:37:41Z"),
        ("2026-11-21T00:37", "2026-11-21T00:37:00Z"),
        ("2026-11-21T00:37:41.1234567Z", "2026-11-21T00:37:41.123456Z"),
        ("", None),
        ("   ", None),
        ("soon", None),
        ("Mon, 31 Feb 2022 22:26:58 GMT", None),
        ("Mon, 11 Foo 2022 22:26:58 GMT", None),
        ("Mon, 11 Apr 2022 25:26:58 GMT", None),
        ("Mon, 11 Apr 2022 22:26:58 CEST", None),
        ("Mon, 11 Apr 0000 22:26:58 GMT", None),
        ("11 Apr 0022 22:26:58 GMT", "0022-04-11T22:26:58Z"),
        ("2026-13-21T00:37:41Z", None),
        ("2026-11-21", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("\u0660\u0661 May 2026 02:03:04 GMT", None),
        ("1772445600", None),
        (1772445600, None),
        (None, None),
        (["2026-11-21T00:37:41Z"], None),
    ],
)
def test_not_before_is_a_moment_or_null(text: object, expected: str | None) -> None:
    """NotBefore is read as RFC 1123 or ISO 8601, whatever its weekday; any other text is null."""
    assert expected == moment_text(parse_moment(text))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Scheduled", "Scheduled"),
        ("started", "Started"),
        (" Completed ", "Completed"),
        ("CANCELED", "Canceled"),
        ("Advisory", "Advisory"),
        (" postponed ", "postponed"),
        ("", "Unknown"),
        (None, "Unknown"),
        (7, "Unknown"),
        (["Scheduled"], "Unknown"),
    ],
)
def test_a_status_is_azures_word(said: object, expected: str) -> None:
    """An unknown status is passed on, and a missing one is Unknown."""
    assert expected == parsed(EventStatus=said).event_status


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (-1, None),
        (0, 0),
        (5, 5),
        (5.0, 5),
        (5.5, None),
        (-1.0, None),
        (True, None),
        ("5", None),
        (None, None),
        (10**300, None),
        (1e300, None),
    ],
)
def test_a_duration_is_seconds_or_null(said: object, expected: int | None) -> None:
    """A duration is read in seconds; Azure's -1 becomes null, and 0 stays 0."""
    assert expected == parsed(DurationInSeconds=said).duration_in_seconds


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["a", "b"], ("a", "b")),
        ([], ()),
        ("a", ("a",)),
        (["a", None, 3, ["b"], "", "_"], ("a",)),
        ({"a": 1}, ()),
        (None, ()),
    ],
)
def test_resources_are_names(said: object, expected: tuple[str, ...]) -> None:
    """Entries of `Resources` that are not names are left out."""
    assert expected == parsed(Resources=said).resources


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (["vm1"], True),
        (["VM1"], True),
        (["other", "Vm1"], True),
        (["vm12"], False),
        (["xvm1"], False),
        (["vm"], False),
        ([], False),
    ],
)
def test_a_vm_is_named_whole_and_in_any_case(resources: list[str], expected: bool) -> None:
    """A VM is named by its whole name in any case: `vm12` does not name `vm1`."""
    assert expected == parsed(Resources=resources).affects("vm1")


@pytest.mark.parametrize(
    ("event_type", "duration", "expected"),
    [
        ("Freeze", 9, "pause"),
        ("Freeze", -1, "pause"),
        ("Freeze", 0, "none"),
        ("freeze", 5, "pause"),
        ("Reboot", -1, "restart"),
        ("Redeploy", -1, "redeploy"),
        ("Preempt", -1, "delete"),
        ("Terminate", -1, "delete"),
        ("SpotRebalanceRecommendation", -1, "none"),
        ("Reboot", 0, "restart"),
        ("Levitate", 5, None),
        (None, 5, None),
    ],
)
def test_the_impact_follows_from_type_and_duration(
    event_type: str | None, duration: int, expected: str | None
) -> None:
    """The impact follows from type and duration, and is null for an unknown type."""
    event = parsed(EventType=event_type, DurationInSeconds=duration)
    assert expected == event.impact


def test_an_entry_without_an_id_puts_absence_in_doubt() -> None:
    """Beside an entry without an EventId the others are read, and no missing event counts as
    ended.
    """
    document = parse_document(body(None, 3, "x", [], {}, {"EventId": 4}, {"EventId": " "}, entry()))
    assert (len(document.events), len(document.ignored), document.is_complete) == (1, 7, False)


def test_a_repeated_id_counts_once() -> None:
    """A repeated entry is left out, also if its id has another case, and missing events count as
    ended.
    """
    document = parse_document(body(entry(), entry(EVENT_ID.lower(), event_type="Reboot")))
    types = [event.event_type for event in document.events.values()]
    assert (types, len(document.ignored), document.is_complete) == (["Freeze"], 1, True)


@pytest.mark.parametrize(
    ("other", "ambiguous"),
    [
        (entry(EVENT_ID.lower()), False),
        (entry(EVENT_ID.lower(), resources=["web_3", "web_4"]), True),
        (entry(description="moved"), True),
        (without(entry(), "Description"), True),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_an_id_that_stands_twice_with_different_content_is_ambiguous(
    other: dict[str, Any], *, first: bool, ambiguous: bool
) -> None:
    """Two entries with the same id and different content make the event ambiguous; a third entry
    like the first does not change that.
    """
    entries = [entry(), other] if first else [other, entry()]
    (event,) = parse_document(body(*entries)).events.values()
    assert event.is_ambiguous == ambiguous
    (event,) = parse_document(body(*entries, entries[0])).events.values()
    assert event.is_ambiguous == ambiguous


@pytest.mark.parametrize("turned", [False, True])
def test_different_entries_of_an_event_are_united(*, turned: bool) -> None:
    """The event of two different entries has the VMs of both, the status Started if one has it, and
    the earlier time, in any order of the entries.
    """
    entries = [
        entry(resources=["web_1"], not_before="Mon, 11 Apr 2022 22:26:58 GMT"),
        entry(resources=["web_2", "web_1"], status="Started", not_before=""),
    ]
    (event,) = parse_document(body(*(reversed(entries) if turned else entries))).events.values()
    assert sorted(event.resources) == ["web_1", "web_2"]
    assert (event.event_status, event.is_ambiguous) == ("Started", True)
    assert event.not_before == datetime(2022, 4, 11, 22, 26, 58, tzinfo=UTC)
    (other,) = parse_document(body(*entries)).events.values()
    assert event == other


def test_the_order_of_three_entries_of_an_event_has_no_effect() -> None:
    """Three entries of one event give the same result in any order."""
    entries = [
        entry(),
        entry(event_type="Redeploy"),
        entry(event_type="Reboot", status="Started", not_before=""),
    ]
    first, *others = (
        parse_document(body(*order)).events for order in itertools.permutations(entries)
    )
    assert all(first == each for each in others)


DEEP = 100_000
NO_DOCUMENTS = {
    "white space": b" \r\n\t ",
    "html": b"<!DOCTYPE html><html><body>Sign in</body></html>",
    "truncated": body(entry())[:-9],
    "two documents": body() + body(),
    "null": b"null",
    "number": b"1",
    "string": b'"Events"',
    "list": b"[]",
    "an error of 400": b'{"error":"Bad request.","newest-versions":["2020-10-01"]}',
    "an error of 404": b'{ "error": "Not found" }',
    "no events": b'{"DocumentIncarnation":1}',
    "events null": b'{"Events":null}',
    "events object": b'{"Events":{}}',
    "events string": b'{"Events":"[]"}',
    "events in small letters": b'{"events":[]}',
    "a key twice deep inside": b'{"Events":[{"EventId":"x","n":{"a":1,"a":1}}]}',
    "UTF-16": '{"Events":[]}'.encode("utf-16"),
    "NUL": b'{"Events":[]}\0',
    "a control character": b'{"Events":[{"EventId":"x\x01"}]}',
    "deep objects": b'{"Events":[' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"]}",
    "a little too deep": b'{"Events":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
}


@pytest.mark.parametrize("document", NO_DOCUMENTS.values(), ids=NO_DOCUMENTS.keys())
def test_an_invalid_document_is_one_error(document: bytes) -> None:
    """An answer that is not a document raises one error with a short message."""
    with pytest.raises(DocumentError) as caught:
        parse_document(document)
    assert 10 < len(str(caught.value)) < 120


def test_a_document_as_deep_as_allowed_is_read() -> None:
    """A document is refused only if it is nested more deeply than a record can be."""
    depth = MAX_DEPTH - 3
    raw = b'{"EventId":"x","n":' + b"[" * depth + b"]" * depth + b"}"
    assert "x" in parse_document(b'{"Events":[' + raw + b"]}").events


def test_a_large_document_is_read() -> None:
    """A document with ten megabytes of text in a field is read."""
    event = only(body(entry(description="x" * 10_000_000)))
    assert len(event.description or "") == 10_000_000


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_parse_raises_nothing_else_on_bytes(document: bytes) -> None:
    """Any bytes are a document or raise `DocumentError`."""
    with suppress(DocumentError):
        parse_document(document)


@settings(deadline=None)
@given(JSON | st.lists(JSON | st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=4), JSON)
def test_parse_raises_nothing_else_on_json(events: Any, incarnation: Any) -> None:
    """An event that was read from any JSON can be written, hashed and compared."""
    try:
        document = parse_document(
            json.dumps({"DocumentIncarnation": incarnation, "Events": events}).encode()
        )
    except DocumentError:
        return
    for key, event in document.events.items():
        wire = event.to_wire()
        assert key == event.key
        assert parse_event(json.loads(canonical_json(event.raw))).to_wire() == wire
        assert fingerprint(wire).startswith("sha256:")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.text(min_size=1).filter(str.strip))
def test_an_entry_with_an_id_is_never_lost(fields: dict[str, Any], event_id: str) -> None:
    """A wrong type in a field loses that field only."""
    event = only(body(entry() | fields | {"EventId": event_id}))
    assert event_id.encode("utf-16", "replace") == event.event_id.encode("utf-16", "replace")


@settings(deadline=None)
@given(st.permutations([f"vm-{n}" for n in range(6)]))
def test_a_fingerprint_ignores_the_order_of_resources(resources: list[str]) -> None:
    """The fingerprint is the same on VMs that see the names in another order."""
    expected = fingerprint(parsed(Resources=[f"vm-{n}" for n in range(6)]).to_wire())
    assert expected == fingerprint(parsed(Resources=resources).to_wire())


def test_a_fingerprint_can_be_computed_from_a_record() -> None:
    """The fingerprint is the hash of the sorted, compact JSON of eight fields of the record."""
    wire = parsed(Resources=["b", "a"]).to_wire()
    names = ("eventId", "eventType", "resourceType", "eventStatus", "notBefore", "eventSource")
    seen = {name: wire[name] for name in (*names, "durationInSeconds")}
    text = json.dumps(seen | {"resources": ["a", "b"]}, sort_keys=True, separators=(",", ":"))
    assert f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" == fingerprint(wire)


@pytest.mark.parametrize(
    "change",
    [
        {"event_id": "other"},
        {"event_type": "Reboot"},
        {"resource_type": "Something"},
        {"resources": ("web_3", "web_4")},
        {"event_status": "Started"},
        {"not_before": datetime(2026, 3, 2, 10, 16, tzinfo=UTC)},
        {"event_source": "User"},
        {"duration_in_seconds": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_fingerprint_covers_what_an_approver_sees(change: dict[str, Any]) -> None:
    """A change of any of the eight fields changes the fingerprint."""
    event = parsed()
    assert fingerprint(event.to_wire()) != fingerprint(replace(event, **change).to_wire())


def test_a_fingerprint_leaves_the_description_out() -> None:
    """A new description does not change the fingerprint, so that no new approval is needed."""
    event = parsed()
    reworded = replace(event, description="other words")
    assert fingerprint(event.to_wire()) == fingerprint(reworded.to_wire())
