"""Times, comparisons and timelines in words."""

from __future__ import annotations

import pytest

from console.fleet.differences import SEEN, WORDING
from console.fleet.event_view import Reporter
from console.fleet.moments import seconds_of
from console.fleet.outcomes import outcome_text
from console.fleet.timeline import TimelineDecision, TimelineReceipt, TimelineRecord
from console.web.pages import formatting, labels, timeline_lines
from console.web.pages.time_comparisons import compared
from wire.event import IMPACT_OF
from wire.record import EVENT_SCHEDULED


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
    """The time that is left is a clock in whole seconds that is never rounded up; words if none is
    left.
    """
    assert formatting.left_text(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(4.84, "4.8 s"), (9, "9 s"), (59.6, "1 min"), (90, "1 min 30 s"), (93_784, "1 d 2 h")],
)
def test_a_length_of_time_has_two_units_at_most(seconds: float, words: str) -> None:
    """A length of time has at most two units."""
    assert formatting.span(seconds) == words


def test_a_time_that_cannot_be_is_no_error() -> None:
    """A time that is off by millennia is shown without an error."""
    assert formatting.clock(1e30, 0.0) == "unknown"
    assert formatting.ago(None, 0.0) == "never"
    assert seconds_of("9999-12-31T23:59:59.999Z") is not None
    assert seconds_of("nonsense") is None


def test_signs_that_cannot_be_seen_are_written_out() -> None:
    """Markup is escaped, and characters that turn the direction of writing are written out."""
    assert formatting.outside("a\u202eb<\n\x07c") == "<bdi>a\\u202eb&lt; \\u0007c</bdi>"


def reported(*, affects: bool = True, notice: float, pause: float | None = None) -> Reporter:
    """Return a VM's report of an event."""
    return Reporter(
        vm_id="a",
        name=None,
        contact=None,
        affects_this_vm=affects,
        state="started",
        event_status="Started",
        fingerprint="sha256:1",
        impact="pause",
        description=None,
        last_seen_at=None,
        notice_seconds=notice,
        pause_seconds=pause,
        downtime_seconds=None,
        differences=[],
    )


def test_less_notice_than_promised_is_shown_as_worse() -> None:
    """Notice is compared with Azure's promise, and the pause with the announced one."""
    found = compared(reported(notice=600.0, pause=12.0), "Freeze", 9)
    assert [(each.sentence, each.is_worse, each.width) for each in found] == [
        ("notice 10 min, promised 15 min", True, 67),
        ("paused 12 s, announced 9 s", True, 100),
    ]


def test_an_event_of_other_vms_has_no_comparisons() -> None:
    """A VM that the event does not name has no comparison."""
    assert compared(reported(affects=False, notice=1.0), "Freeze", 9) == []


def test_equal_reports_of_many_vms_are_one_line() -> None:
    """Equal reports are one line, with the newest first and a receipt's reason in words."""
    items = [
        TimelineRecord(
            kind="record",
            at=1,
            id=vm,
            vm_id=vm,
            event_id="E",
            type=EVENT_SCHEDULED,
            transition="scheduled",
        )
        for vm in ("a", "b", "c")
    ]
    refused = TimelineReceipt(
        kind="receipt",
        at=2,
        id="r",
        vm_id="a",
        event_id="E",
        jti="1",
        state="rejected",
        reason="event_changed",
        by="mia",
        rsn=None,
        act="approve",
    )
    found = timeline_lines.lines_of([*items, refused], str.upper)
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


def test_a_person_may_give_a_reason_that_is_a_word_of_ours() -> None:
    """The approver's own reason is shown unchanged, also if it is a word of the console."""
    decided = TimelineDecision(
        kind="decision",
        at=1,
        id="d",
        event_id="E",
        action="approve",
        by="mia",
        reason="expired",
        outcome=None,
        words=None,
    )
    (entry,) = timeline_lines.lines_of([decided], str.upper)
    assert (entry.title, entry.reason, entry.vms) == ("Decision: approved", "expired", [])


def test_every_type_of_event_and_every_field_that_can_differ_has_its_label() -> None:
    """The pages have words for each type of event whose impact is known, and for each field that is
    compared.
    """
    assert labels.TYPES.keys() == IMPACT_OF.keys()
    assert {*SEEN, *WORDING} >= labels.FIELD_LABELS.keys()
    for name in (*SEEN, *WORDING):
        assert labels.field_label(name)
    assert labels.field_label("hostGroup") == "Host group"
    assert labels.field_order("hostGroup") > labels.field_order("description")


def test_that_no_vm_answered_is_said_once() -> None:
    """The outcome says once that no VM answered, with a remedy."""
    assert outcome_text("unanswered", "no_answer").count("did not answer") == 1
    assert outcome_text("failed", "not_sent").startswith("The approval failed. The command")
