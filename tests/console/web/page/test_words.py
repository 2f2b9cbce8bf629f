"""Times, measures and timelines in words."""

from __future__ import annotations

import pytest

from console.fleet.moments import seconds_of
from console.fleet.outcomes import outcome_words
from console.web.pages import past, text
from console.web.pages.durations import durations


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "may start any second"),
        (0, "may start any second"),
        (59.9, "00:59"),
        (872, "14:32"),
        (3_600, "1:00:00"),
        (86_400 * 6 + 4 * 3_600 + 720, "6 d 04:12"),
    ],
)
def test_what_is_left_is_a_clock(seconds: float, words: str) -> None:
    """Whole seconds, never rounded up; nothing left is said in words."""
    assert text.left_words(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(4.84, "4.8 s"), (9, "9 s"), (59.6, "1 min"), (90, "1 min 30 s"), (93_784, "1 d 2 h")],
)
def test_a_length_of_time_has_two_units_at_most(seconds: float, words: str) -> None:
    """As a person would say it."""
    assert text.span(seconds) == words


def test_a_time_that_cannot_be_is_no_error() -> None:
    """Clocks of VMs can be wrong by millennia."""
    assert text.clock(1e30, 0.0) == "unknown"
    assert text.ago(None, 0.0) == "never"
    assert seconds_of("9999-12-31T23:59:59.999Z") is not None
    assert seconds_of("nonsense") is None


def test_signs_that_cannot_be_seen_are_written_out() -> None:
    """Markup is escaped, the direction of writing cannot be turned."""
    assert text.outside("a\u202eb<\n\x07c") == "<bdi>a\\u202eb&lt; \\u0007c</bdi>"


def test_less_notice_than_promised_is_shown_as_worse() -> None:
    """Notice against Azure's promise, the pause against what was announced."""
    found = durations(
        {
            "eventType": "Freeze",
            "affectsThisVm": True,
            "noticeSeconds": 600.0,
            "durationInSeconds": 9,
            "pauseSeconds": 12.0,
        }
    )
    assert [(each.sentence, each.is_worse, each.width) for each in found] == [
        ("notice 10 min, promised 15 min", True, 67),
        ("paused 12 s, announced 9 s", True, 100),
    ]


def test_an_event_of_other_vms_has_no_measures() -> None:
    """A VM that the event does not name was promised nothing."""
    assert durations({"eventType": "Freeze", "affectsThisVm": False, "noticeSeconds": 1.0}) == []


def test_equal_reports_of_many_vms_are_one_line() -> None:
    """Newest first; a receipt's reason is in plain words."""
    items = [
        {"kind": "record", "transition": "scheduled", "vmId": vm, "eventId": "E", "id": vm}
        for vm in ("a", "b", "c")
    ]
    refused = {"kind": "receipt", "state": "rejected", "reason": "event_changed", "vmId": "a"}
    found = past.entries([*items, {**refused, "by": "mia"}], str.upper)
    assert [
        (each.title, each.reason, each.by, [name for _, name in each.vms]) for each in found
    ] == [
        (
            "Approval: rejected by the VM",
            "The VM has another state of the event than the console showed.",
            "mia",
            ["A"],
        ),
        ("Announced", None, None, ["A", "B", "C"]),
    ]


def test_that_no_vm_answered_is_said_once() -> None:
    """The reason of the outcome says it, and what to do."""
    assert outcome_words("unanswered", "no_answer").count("did not answer") == 1
    assert outcome_words("failed", "not_sent").startswith("The approval failed. The command")
