"""The table of an approval: what follows in each stage from each condition."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.documents.documents import NOW, entry
from support.store_helpers import AN_APPROVAL

from bridge.approval.transitions import (
    TABLE,
    ApprovalSituation,
    ApprovalStage,
    ApprovalStep,
    Condition,
    answer_of,
    printed,
    stage_of,
)
from bridge.events.tracked import TrackedEvent
from bridge.imds.document import parse_event
from bridge.imds.exchange import ImdsError
from bridge.store.approvals import Act
from wire.receipt import FAILURES, REFUSALS


def tracked(*, pending: bool = True, **fields: Any) -> TrackedEvent:
    """Return an event that names this VM alone and is shown by the newest document."""
    event = parse_event(entry(**fields))
    return TrackedEvent(
        event=event,
        status=event.event_status,
        revision=1,
        first_seen=NOW,
        not_before=event.not_before,
        affects_this_vm=True,
        pending=pending,
        shown=True,
    )


def observed(known: TrackedEvent | None, **changes: Any) -> ApprovalSituation:
    """Return an observation in which nothing prevents a request."""
    approval = replace(AN_APPROVAL, fingerprint=tracked().fingerprint, expires=None)
    seen = ApprovalSituation(
        approval=approval,
        tracked=known,
        first_seen=NOW,
        basis=None,
        is_current=True,
        is_paused=False,
        now=NOW,
    )
    return replace(seen, **changes)


def test_every_stage_has_a_step_for_every_condition() -> None:
    """The table has a step for every stage and condition, and shows them in their order."""
    assert list(TABLE) == list(ApprovalStage)
    assert all(list(row) == list(Condition) for row in TABLE.values())
    assert [row[0] for row in printed()] == [each.value for each in Condition]
    assert all(len(row) == 1 + len(ApprovalStage) for row in printed())


def test_only_what_is_ready_is_posted() -> None:
    """Only one condition leads to a request, and only in stages in which IMDS has accepted none."""
    posting = {
        (stage, condition)
        for stage, row in TABLE.items()
        for condition in row
        if row[condition].post
    }
    quiet = (ApprovalStage.POSTED, ApprovalStage.PREPARING)
    assert posting == {(stage, Condition.READY) for stage in ApprovalStage if stage not in quiet}


def test_a_wish_to_prepare_never_sends_a_request() -> None:
    """An approval that only prepares is confirmed once the VM is prepared, fails if it cannot be,
    and sends no request.
    """
    steps = TABLE[ApprovalStage.PREPARING]
    assert not any(step.post for step in steps.values())
    assert steps[Condition.READY].end == "confirmed"
    assert steps[Condition.NOT_PREPARED].reason == "not_prepared"
    assert steps[Condition.UNPREPARED].end is None


def test_what_has_expired_waits_only_if_a_request_may_have_worked() -> None:
    """An expired approval ends at once, or with its event if a request may have worked."""
    ends = {stage: row[Condition.EXPIRED].reason for stage, row in TABLE.items()}
    assert ends == dict.fromkeys(ApprovalStage) | {
        ApprovalStage.UNTRIED: "expired",
        ApprovalStage.UNREACHED: "expired",
    }


def test_every_stage_ends_with_its_event() -> None:
    """An approval in any stage ends when its event has begun or is over."""
    for condition in (Condition.BEGUN, Condition.WITHOUT_THIS_VM, Condition.OVER):
        assert all(row[condition].end for row in TABLE.values())


def test_what_was_posted_waits_for_its_event_alone() -> None:
    """An approval that IMDS has accepted changes only when its event begins or ends."""
    steps = TABLE[ApprovalStage.POSTED]
    moving = [condition for condition, step in steps.items() if step != ApprovalStep()]
    assert moving == [Condition.BEGUN, Condition.WITHOUT_THIS_VM, Condition.OVER]


def test_every_reason_is_one_of_the_closed_list() -> None:
    """Every reason in the table is one that the documentation explains."""
    reasons = {each.reason for row in TABLE.values() for each in row.values()} - {None}
    assert reasons <= {*REFUSALS, *FAILURES}


@pytest.mark.parametrize(
    ("known", "changes", "expected"),
    [
        (tracked(), {}, Condition.READY),
        (tracked(), {"is_paused": True}, Condition.PAUSED),
        (tracked(), {"is_paused": True, "is_current": False}, Condition.NOT_SHOWN),
        (replace(tracked(), shown=False), {}, Condition.NOT_SHOWN),
        (tracked(), {"basis": Condition.WAITING, "is_current": False}, Condition.WAITING),
        (tracked(), {"basis": Condition.WITHDRAWN}, Condition.WITHDRAWN),
        (tracked(), {"preparation": "none"}, Condition.UNPREPARED),
        (tracked(), {"preparation": "preparing", "is_paused": True}, Condition.UNPREPARED),
        (tracked(), {"preparation": "preparing", "is_current": False}, Condition.UNPREPARED),
        (tracked(), {"preparation": "prepared", "is_current": False}, Condition.NOT_SHOWN),
        (tracked(), {"preparation": "failed"}, Condition.NOT_PREPARED),
        (tracked(), {"preparation": "prepared"}, Condition.READY),
        (
            tracked(resources=["web_3", "web_4"]),
            {"basis": Condition.WAITING},
            Condition.CHANGED,
        ),
        (tracked(status="Advisory"), {}, Condition.CHANGED),
        (tracked(status="Started"), {"basis": Condition.WITHDRAWN}, Condition.BEGUN),
        (tracked(status="Started", pending=False), {}, Condition.BEGUN),
        (
            replace(tracked(status="Started", pending=False), goes_on_without_this_vm=True),
            {},
            Condition.BEGUN,
        ),
        (
            replace(tracked(pending=False), goes_on_without_this_vm=True),
            {},
            Condition.WITHOUT_THIS_VM,
        ),
        (tracked(pending=False), {}, Condition.OVER),
        (tracked(status="Started"), {"first_seen": NOW - timedelta(hours=1)}, Condition.OVER),
        (None, {}, Condition.OVER),
    ],
)
def test_the_first_condition_that_holds(
    known: TrackedEvent | None, changes: dict[str, Any], expected: Condition
) -> None:
    """Conditions that end an approval come before those that delay it."""
    assert observed(known, **changes).condition is expected


@pytest.mark.parametrize(("seconds", "expected"), [(-1, Condition.READY), (0, Condition.EXPIRED)])
def test_a_command_expires_at_its_time(seconds: int, expected: Condition) -> None:
    """A command is expired from `exp` on."""
    seen = observed(tracked())
    expires = int(NOW.timestamp())
    now = NOW + timedelta(seconds=seconds)
    assert (
        replace(seen, approval=replace(seen.approval, expires=expires), now=now).condition
        is expected
    )


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("http_400", Condition.REFUSED),
        ("http_405", Condition.REFUSED),
        ("http_404", Condition.NOT_REACHED),
        ("http_429", Condition.NOT_REACHED),
        ("refused", Condition.NOT_REACHED),
        ("unreachable", Condition.NOT_REACHED),
        ("http_503", Condition.SERVER_ERROR),
        ("timeout", Condition.LOST),
        ("connection", Condition.LOST),
        ("a word of tomorrow", Condition.LOST),
    ],
)
def test_what_imds_answered(reason: str, expected: Condition) -> None:
    """An answer that is not known to be harmless may have started the event."""
    assert answer_of(ImdsError("no", reason=reason), refused_before=False) is expected
    again = Condition.REFUSED_AGAIN if expected is Condition.REFUSED else expected
    assert answer_of(ImdsError("no", reason=reason), refused_before=True) is again
    assert answer_of(None, refused_before=False) is Condition.OK


def test_a_stage_is_stored_and_read_back() -> None:
    """A stage is the same after a restart, and an unknown effect may be any."""
    for stage in ApprovalStage:
        act: Act = "prepare" if stage is ApprovalStage.PREPARING else "approve"
        kept = replace(AN_APPROVAL, state=stage.state, effect=stage.effect, act=act)
        assert stage_of(kept) is stage
    odd: Any = "a word of tomorrow"
    assert stage_of(replace(AN_APPROVAL, effect=odd)) is ApprovalStage.UNSURE
    assert stage_of(replace(AN_APPROVAL, state="posted", effect="none")) is ApprovalStage.POSTED


def test_the_table_can_be_printed() -> None:
    """The printed table has a line for each condition and a column for each stage."""
    rows = {row[0]: row[1:] for row in printed()}
    assert rows["none of these"] == (*("**POST**",) * 4, "", "`confirmed`")
    assert rows["its command has expired"][0] == "`failed`: `expired`"
    assert "`event_changed`" in rows[Condition.CHANGED.value][0]
