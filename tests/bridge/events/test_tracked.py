"""What the bridge knows of an event from poll to poll."""

import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents.documents import NOW, body, entry

from bridge.events.tracked import (
    KEEP_ENDED,
    Measured,
    TrackedEvent,
    as_shown,
    dump_tracked,
    load_tracked,
    measure,
    remembered,
)
from bridge.imds.document import parse_document

MOMENTS = st.datetimes(timezones=st.just(UTC))
SECONDS = st.none() | st.floats(0, 1e9)


def known(raw: dict[str, Any] | None = None, *, pending: bool = True) -> TrackedEvent:
    """Return an event as it is known after its first document."""
    (event,) = parse_document(body(raw or entry())).events.values()
    return TrackedEvent(
        event=event,
        status=event.event_status,
        revision=1,
        first_seen=NOW,
        not_before=event.not_before,
        affects_this_vm=event.affects("web_3"),
        pending=pending,
        record_id="0b7f5f0e-8f0c-5b0e-9f54-0f6d2c1f9a10",
    )


@settings(deadline=None)
@given(
    st.builds(
        TrackedEvent,
        event=st.sampled_from([known().event, known({"EventId": "x \u2028", "n": [1.5]}).event]),
        status=st.text(),
        revision=st.integers(1),
        first_seen=MOMENTS,
        not_before=st.none() | MOMENTS,
        affects_this_vm=st.booleans(),
        named_before=st.booleans(),
        pending=st.booleans(),
        record_id=st.text(),
        uptime=SECONDS,
        appeared=st.integers(1),
        state_since=st.integers(1),
        measured=st.builds(
            Measured,
            pause_seconds=SECONDS,
            restarted=st.none() | st.booleans(),
            downtime_seconds=SECONDS,
        ),
    )
)
def test_what_is_known_survives_the_store(event: TrackedEvent) -> None:
    """A tracked event that is read back equals the one that was written."""
    assert event == load_tracked(dump_tracked(event))


@pytest.mark.parametrize("text", ["", "null", "{}", "[1]", '{"raw": 1}'])
def test_a_damaged_dump_is_an_error(text: str) -> None:
    """A damaged row raises one of the documented errors."""
    with pytest.raises((ValueError, KeyError, TypeError)):
        load_tracked(text)


def test_a_later_version_may_add_fields() -> None:
    """A row with unknown fields can be read."""
    kept = json.loads(dump_tracked(known())) | {"later": 1}
    kept["measured"]["later"] = 2
    assert known() == load_tracked(json.dumps(kept))


def test_the_raw_entry_keeps_its_order() -> None:
    """`raw` has the entry's order also after a restart."""
    raw = {"Zeta": 1, "EventId": "x", "Alpha": [0.1, {"b": 1, "a": 2}]}
    assert json.dumps(raw) == json.dumps(load_tracked(dump_tracked(known(raw))).event.raw)


def test_the_fingerprint_is_that_of_the_latest_record() -> None:
    """The fingerprint covers how an event ended."""
    ended = load_tracked(
        dump_tracked(known()).replace('"status": "Scheduled"', '"status": "Canceled"')
    )
    assert known().fingerprint != ended.fingerprint


(PAUSED,) = measure([known()], pause_seconds=1.25)


@pytest.mark.parametrize(
    ("before", "happened", "expected"),
    [
        (known(), {}, []),
        (PAUSED, {"pause_seconds": 2.5004}, [Measured(pause_seconds=3.75)]),
        (
            known(),
            {"restarted": True, "downtime_seconds": 61.23456},
            [Measured(restarted=True, downtime_seconds=61.235)],
        ),
        (known(), {"restarted": True}, [Measured(restarted=True, downtime_seconds=None)]),
        (known(pending=False), {"pause_seconds": 1.0, "restarted": True}, []),
        (known(entry(resources=["web_4"])), {"restarted": True}, [Measured(restarted=True)]),
    ],
    ids=["nothing", "pauses add up", "a restart", "of unknown length", "ended", "of other VMs"],
)
def test_what_happens_is_measured_for_what_is_pending(
    before: TrackedEvent, happened: dict[str, Any], expected: list[Measured]
) -> None:
    """Pauses and downtimes of pending events are stored in rounded seconds, those without a
    measurement are null, and ended events are not written again.
    """
    assert [each.measured for each in measure([before], **happened)] == expected


def test_only_the_last_events_that_ended_are_remembered() -> None:
    """The oldest ended events are forgotten, and no pending one."""
    ended = {f"old-{number}": known(pending=False) for number in range(KEEP_ENDED)}
    before = {"first": known(), **ended}
    news = {"old-0": known(pending=False), "new": known(pending=False)}
    after, forgotten = remembered(before, news)
    assert before.keys() - after.keys() == forgotten.keys() == {"old-1"}
    assert list(after)[-2:] == ["old-0", "new"]


def test_another_spelling_of_the_id_changes_no_fingerprint() -> None:
    """An approver's fingerprint is valid after the id's case has changed, also over a restart."""
    before = known(entry("E-1", resources=["web_3", "web_4"]))
    document = parse_document(body(entry("e-1", resources=["web_4", "web_3"])))
    (after,) = as_shown({"e-1": before}, document).values()
    assert after.event.resources == ("web_4", "web_3")
    assert after.fingerprint == load_tracked(dump_tracked(after)).fingerprint == before.fingerprint
