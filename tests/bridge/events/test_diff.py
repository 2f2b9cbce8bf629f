"""The transitions between two documents."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.documents.documents import (
    EVENT_ID,
    LATER,
    NOW,
    OTHER_ID,
    body,
    entry,
    started,
    without,
)

from bridge.events.diff import PollContext, Transition, diff, only_naming
from bridge.events.tracked import Measured, TrackedEvent
from bridge.imds.document import parse_document

CONTINUOUS = PollContext(
    now=NOW, vm_name="web_3", gap_seconds=1.0, is_continuous=True, is_boot_known=True
)
AFTER = replace(CONTINUOUS, now=NOW + timedelta(hours=1))
Known = Mapping[str, TrackedEvent]


def step(
    known: Known, *entries: object, poll: PollContext = CONTINUOUS
) -> tuple[list[Transition], Known]:
    """Return the transitions to a document of these entries, and what is known after them."""
    transitions = diff(known, parse_document(body(*entries)), poll)
    return transitions, {**known, **{each.tracked.event.key: each.tracked for each in transitions}}


def summary(transitions: list[Transition]) -> list[tuple[str, str, int]]:
    """Return kind, status and revision of each transition."""
    return [(each.kind, each.tracked.status, each.tracked.revision) for each in transitions]


def known_after(*entries: object, poll: PollContext = CONTINUOUS) -> Known:
    """Return what is known after one document."""
    return step({}, *entries, poll=poll)[1]


def measured(known: Known, what: Measured) -> Known:
    """Return the same, with what was measured since."""
    return {key: replace(each, measured=what) for key, each in known.items()}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (entry(), ("scheduled", "Scheduled", 1)),
        (started(), ("started", "Started", 1)),
        (entry(status="Levitating"), ("scheduled", "Levitating", 1)),
        ({"EventId": EVENT_ID}, ("scheduled", "Unknown", 1)),
    ],
)
def test_an_event_appears(raw: dict[str, Any], expected: tuple[str, str, int]) -> None:
    """A new event is scheduled, or started at once after a hardware failure."""
    assert [expected] == summary(step({}, raw)[0])


@pytest.mark.parametrize(
    ("name", "then"), [("web_3", "web_4"), ("web_4", "web_3")], ids=["leaves", "comes"]
)
def test_a_vm_with_another_name_is_named_by_other_events(name: str, then: str) -> None:
    """If the VM has another name, an unchanged event that now does or does not name it is
    recorded.
    """
    known = known_after(entry(resources=("web_3",)), poll=replace(CONTINUOUS, vm_name=name))
    (after,), known = step(
        known, entry(resources=("web_3",)), poll=replace(CONTINUOUS, vm_name=then)
    )
    assert (after.kind, after.changed) == ("updated", ("affectsThisVm",))
    assert after.concerns_this_vm
    assert after.tracked.affects_this_vm == (then == "web_3")
    again = replace(CONTINUOUS, vm_name=then)
    assert step(known, entry(resources=("web_3",)), poll=again)[0] == []


def test_the_same_document_has_no_transition() -> None:
    """The same document has no transition, with any incarnation and any order of fields and
    resources.
    """
    first = entry(resources=["web_3", "web_4"])
    again = dict(reversed((first | {"Resources": ["web_4", "web_3"]}).items()))
    assert step(known_after(first), again)[0] == []


@pytest.mark.parametrize(
    "again",
    [
        entry(not_before="Sun, 02 Mar 2026 10:15:00 GMT"),
        entry(not_before="2026-03-02T10:15:00Z"),
        entry(EVENT_ID.lower()),
        entry(duration=9.0),
        entry(status="scheduled"),
    ],
)
def test_another_spelling_has_no_transition(again: dict[str, Any]) -> None:
    """A corrected weekday, or an id in the other case, is no transition."""
    assert step(known_after(entry()), again)[0] == []


@pytest.mark.parametrize(
    ("again", "changed"),
    [
        (entry(event_type="Reboot"), ("eventType",)),
        (entry() | {"ResourceType": "HostGroup"}, ("resourceType",)),
        (entry(resources=["web_3", "web_4"]), ("resources",)),
        (entry(not_before=LATER), ("notBefore",)),
        (entry(not_before="soon"), ("notBefore",)),
        (entry(description="other words"), ("description",)),
        (entry(source="User"), ("eventSource",)),
        (entry(duration=-1), ("durationInSeconds",)),
        (entry(status="Completed"), ("eventStatus",)),
        (entry() | {"Severity": {"level": 3}}, ("Severity",)),
        (entry() | {"Zeta": 1, "Alpha": None}, ("Alpha", "Zeta")),
        (entry(not_before=LATER, description=""), ("notBefore", "description")),
        (
            without(entry(), "EventSource", "DurationInSeconds"),
            ("eventSource", "durationInSeconds"),
        ),
    ],
)
def test_an_update_names_what_changed(again: dict[str, Any], changed: tuple[str, ...]) -> None:
    """An update names the changed fields by the record's names, or by Azure's for an unknown
    field.
    """
    ((transition,), _) = step(known_after(entry()), again)
    assert (transition.kind, transition.tracked.revision) == ("updated", 2)
    assert transition.changed == changed


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (entry(status="Postponed"), entry(status="Waiting"), ("eventStatus",)),
        (entry(not_before="soon"), entry(not_before="later"), ("notBefore",)),
        (entry(not_before=""), without(entry(), "NotBefore"), ()),
        (entry(duration=-1), without(entry(), "DurationInSeconds"), ()),
        (entry() | {"Novelty": 1}, entry() | {"Novelty": 1.0}, ()),
        (entry() | {"Novelty": 1}, entry() | {"Novelty": True}, ("Novelty",)),
        (entry() | {"Novelty": {"a": [0]}}, entry() | {"Novelty": {"a": [False]}}, ("Novelty",)),
        (entry() | {"Description": 0}, entry() | {"Description": False}, ("description",)),
        (entry(duration=0), entry(duration=False), ("durationInSeconds",)),
    ],
)
def test_what_cannot_be_read_is_compared_as_it_came(
    before: dict[str, Any], after: dict[str, Any], changed: tuple[str, ...]
) -> None:
    """A field that cannot be read is null and compared as it came; blank and absent are the
    same.
    """
    transitions, _ = step(known_after(before), after)
    assert [changed] * bool(changed) == [each.changed for each in transitions]


def test_a_started_event_can_be_updated() -> None:
    """A longer duration of a started event is an update."""
    assert summary(step(known_after(started()), started() | {"X": 1})[0]) == [
        ("updated", "Started", 2)
    ]


ENDINGS = [
    (started(), CONTINUOUS, Measured(), "Completed"),
    (started(), replace(CONTINUOUS, is_continuous=False), Measured(), "Completed"),
    (entry(), CONTINUOUS, Measured(), "Canceled"),
    (entry(), CONTINUOUS, Measured(restarted=False), "Canceled"),
    (entry(), replace(CONTINUOUS, approved={"somebody-elses": 1}), Measured(), "Canceled"),
    (
        entry(),
        replace(CONTINUOUS, approved={EVENT_ID.casefold(): 1}),
        Measured(),
        "Unknown",
    ),
    (entry(), replace(CONTINUOUS, is_continuous=False), Measured(restarted=True), "Completed"),
    (entry(), AFTER, Measured(restarted=True), "Completed"),
    (entry(), AFTER, Measured(pause_seconds=4.2), "Completed"),
    (entry(), AFTER, Measured(), "Unknown"),
    (entry(), AFTER, Measured(restarted=False), "Unknown"),
    (entry(), replace(CONTINUOUS, is_continuous=False), Measured(), "Unknown"),
    (entry(not_before=""), CONTINUOUS, Measured(), "Unknown"),
    (entry(not_before="soon"), CONTINUOUS, Measured(), "Unknown"),
    (entry(status="Completed"), CONTINUOUS, Measured(), "Completed"),
    (entry(status="Canceled"), AFTER, Measured(), "Canceled"),
    (entry(status="Levitating"), CONTINUOUS, Measured(), "Unknown"),
    (entry(resources=["web_4"]), AFTER, Measured(restarted=True), "Unknown"),
    (entry(resources=["web_4"]), AFTER, Measured(pause_seconds=9.0), "Unknown"),
]


@pytest.mark.parametrize(("last", "poll", "what", "expected"), ENDINGS)
def test_absence_is_the_end(
    last: dict[str, Any], poll: PollContext, what: Measured, expected: str
) -> None:
    """The end of an event that disappears has a status from what was last seen, how it disappeared
    and what was measured.
    """
    known = measured(known_after(last), what)
    assert [("ended", expected, 2)] == summary(step(known, poll=poll)[0])


def test_an_end_before_the_old_date_is_not_early_after_a_move() -> None:
    """Whether an end is early depends on the last NotBefore."""
    _, known = step(known_after(entry(not_before=LATER)), entry())
    poll = replace(CONTINUOUS, now=NOW + timedelta(minutes=20))
    assert summary(step(known, poll=poll)[0]) == [("ended", "Unknown", 3)]


def test_an_event_ends_once() -> None:
    """A second document without the event has no transition."""
    _, known = step(known_after(entry()))
    assert step(known)[0] == []


def test_ends_come_first() -> None:
    """The ends come first, and then the other transitions in the document's order."""
    transitions, _ = step(known_after(entry()), entry("B"), entry("A"))
    assert [(each.kind, each.tracked.event.event_id) for each in transitions] == [
        ("ended", EVENT_ID),
        ("scheduled", "B"),
        ("scheduled", "A"),
    ]


def test_a_repeated_entry_does_not_hold_ends_back() -> None:
    """A repeated entry does not delay the ends of missing events, because its id is known."""
    assert summary(
        step(known_after(entry(), entry(OTHER_ID)), entry(OTHER_ID), entry(OTHER_ID))[0]
    ) == [("ended", "Canceled", 2)]


def test_there_and_back_and_there_are_three_facts() -> None:
    """A change to B and back to A has three revisions and three ids, though two fingerprints are
    the same.
    """
    first, known = step({}, entry())
    second, known = step(known, entry(not_before=LATER))
    third, _ = step(known, entry())
    facts = [each.tracked for each in (*first, *second, *third)]
    assert [each.revision for each in facts] == [1, 2, 3]
    assert facts[0].fingerprint == facts[2].fingerprint != facts[1].fingerprint


@pytest.mark.parametrize(("raw", "kind"), [(entry(), "scheduled"), (started(), "started")])
def test_a_return_counts_on(raw: dict[str, Any], kind: str) -> None:
    """An event that ended and returns continues its revisions."""
    before = {
        key: replace(each, measured=Measured(restarted=True))
        for key, each in known_after(entry()).items()
    }
    _, known = step(before)
    ((transition,), after) = step(known, raw, poll=AFTER)
    (back,) = after.values()
    assert (transition.kind, back.revision, back.pending) == (kind, 3, True)
    assert (back.first_seen, back.measured.restarted) == (AFTER.now, False)


def test_a_restart_that_cannot_be_noticed_is_not_denied() -> None:
    """Without a boot id, `restarted` is null."""
    known = known_after(entry(), poll=replace(CONTINUOUS, is_boot_known=False))
    assert [each.measured.restarted for each in known.values()] == [None]


def test_an_event_may_come_to_name_this_vm() -> None:
    """Whether an event affects this VM follows from its present resources."""
    _, known = step(known_after(entry(resources=["web_4"])), entry(resources=["WEB_3"]))
    assert [each.affects_this_vm for each in known.values()] == [True]


def test_within_leaves_other_vms_out() -> None:
    """`only_naming` keeps the events that name the VM, and whether the document may hide others."""
    document = parse_document(body(entry(), entry(OTHER_ID, resources=["web_33"]), None))
    inside = only_naming(document, "web_3")
    assert ([EVENT_ID.casefold()], False) == (list(inside.events), inside.is_complete)


def test_an_event_that_names_others_now_is_over_beside_an_unreadable_entry() -> None:
    """An event that the document shows without this VM has ended for it; an absent one may be the
    entry without an EventId.
    """
    known = known_after(entry(), entry(OTHER_ID))
    document = parse_document(body(entry(resources=["web_4"]), {"EventType": "Freeze"}))
    transitions = diff(known, only_naming(document, "web_3"), CONTINUOUS)
    assert summary(transitions) == [("ended", "Unknown", 2)]
    (ended,) = transitions
    assert (ended.tracked.event.event_id, ended.tracked.goes_on_without_this_vm) == (EVENT_ID, True)


def test_a_thousand_events_of_a_hundred_vms_are_compared() -> None:
    """A document of a megabyte is compared, and only what changed is a transition."""
    names = [f"web_{n}" for n in range(100)]
    entries = [entry(f"E{n}", resources=names) for n in range(1000)]
    known = known_after(*json.loads(json.dumps(entries)))
    entries[500] = entry("E500", resources=names, not_before=LATER)
    assert summary(step(known, *entries)[0]) == [("updated", "Scheduled", 2)]
