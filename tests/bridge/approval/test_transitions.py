"""The table of an approval: what follows from each fact in each stage."""

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
    Fact,
    answer_of,
    printed,
    stage_of,
)
from bridge.events.tracked import TrackedEvent
from bridge.imds.document import parse_event
from bridge.imds.exchange import ImdsError
from bridge.store.approvals import Act
from wire.receipt import FAILURES, REFUSALS

ANSWERS = list(Fact)[list(Fact).index(Fact.OK) :]
FACTS = [each for each in Fact if each not in ANSWERS]


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


def test_every_fact_has_a_transition_for_every_stage() -> None:
    """The table has a step for every fact and stage, in the order of the facts."""
    assert list(TABLE) == list(Fact)
    assert all(list(row) == list(ApprovalStage) for row in TABLE.values())


def test_only_what_is_ready_is_posted() -> None:
    """Only one fact leads to a request, and only in stages in which IMDS has accepted none."""
    posting = {(fact, stage) for fact, row in TABLE.items() for stage in row if row[stage].post}
    quiet = (ApprovalStage.POSTED, ApprovalStage.PREPARING)
    assert posting == {(Fact.READY, stage) for stage in ApprovalStage if stage not in quiet}


def test_a_wish_to_prepare_never_sends_a_request() -> None:
    """An approval that only prepares is confirmed once the VM is prepared, fails if it cannot be,
    and sends no request.
    """
    column = {fact: row[ApprovalStage.PREPARING] for fact, row in TABLE.items()}
    assert not any(transition.post for transition in column.values())
    assert column[Fact.READY].end == "confirmed"
    assert column[Fact.NOT_PREPARED].reason == "not_prepared"
    assert column[Fact.UNPREPARED].end is None


def test_what_has_expired_waits_only_if_a_request_may_have_worked() -> None:
    """An expired approval ends at once, or with its event if a request may have worked."""
    ends = {stage: transition.reason for stage, transition in TABLE[Fact.EXPIRED].items()}
    assert ends == dict.fromkeys(ApprovalStage) | {
        ApprovalStage.UNTRIED: "expired",
        ApprovalStage.UNREACHED: "expired",
    }


def test_every_stage_ends_with_its_event() -> None:
    """An approval in any stage ends when its event has begun or is over."""
    for fact in (Fact.BEGUN, Fact.LEFT, Fact.OVER):
        assert all(transition.end for transition in TABLE[fact].values())


def test_what_was_posted_waits_for_its_event_alone() -> None:
    """An approval that IMDS has accepted changes only when its event begins or ends."""
    steps = {fact: TABLE[fact][ApprovalStage.POSTED] for fact in Fact}
    moving = [fact for fact, step in steps.items() if step != ApprovalStep()]
    assert moving == [Fact.BEGUN, Fact.LEFT, Fact.OVER]


def test_every_reason_is_one_of_the_closed_list() -> None:
    """Every reason in the table is one that the documentation explains."""
    reasons = {each.reason for row in TABLE.values() for each in row.values()} - {None}
    assert reasons <= {*REFUSALS, *FAILURES}


@pytest.mark.parametrize(
    ("known", "changes", "expected"),
    [
        (tracked(), {}, Fact.READY),
        (tracked(), {"is_paused": True}, Fact.PAUSED),
        (tracked(), {"is_paused": True, "is_current": False}, Fact.NOT_SHOWN),
        (replace(tracked(), shown=False), {}, Fact.NOT_SHOWN),
        (tracked(), {"basis": Fact.WAITING, "is_current": False}, Fact.WAITING),
        (tracked(), {"basis": Fact.WITHDRAWN}, Fact.WITHDRAWN),
        (tracked(), {"preparation": "none"}, Fact.UNPREPARED),
        (tracked(), {"preparation": "preparing", "is_paused": True}, Fact.UNPREPARED),
        (tracked(), {"preparation": "preparing", "is_current": False}, Fact.UNPREPARED),
        (tracked(), {"preparation": "prepared", "is_current": False}, Fact.NOT_SHOWN),
        (tracked(), {"preparation": "failed"}, Fact.NOT_PREPARED),
        (tracked(), {"preparation": "prepared"}, Fact.READY),
        (
            tracked(resources=["web_3", "web_4"]),
            {"basis": Fact.WAITING},
            Fact.CHANGED,
        ),
        (tracked(status="Advisory"), {}, Fact.CHANGED),
        (tracked(status="Started"), {"basis": Fact.WITHDRAWN}, Fact.BEGUN),
        (tracked(status="Started", pending=False), {}, Fact.BEGUN),
        (
            replace(tracked(status="Started", pending=False), goes_on_without_this_vm=True),
            {},
            Fact.BEGUN,
        ),
        (replace(tracked(pending=False), goes_on_without_this_vm=True), {}, Fact.LEFT),
        (tracked(pending=False), {}, Fact.OVER),
        (tracked(status="Started"), {"first_seen": NOW - timedelta(hours=1)}, Fact.OVER),
        (None, {}, Fact.OVER),
    ],
)
def test_the_first_fact_that_holds(
    known: TrackedEvent | None, changes: dict[str, Any], expected: Fact
) -> None:
    """Facts that end an approval come before those that delay it."""
    assert observed(known, **changes).fact is expected


@pytest.mark.parametrize(("seconds", "expected"), [(-1, Fact.READY), (0, Fact.EXPIRED)])
def test_a_command_expires_at_its_time(seconds: int, expected: Fact) -> None:
    """A command is expired from `exp` on."""
    seen = observed(tracked())
    expires = int(NOW.timestamp())
    now = NOW + timedelta(seconds=seconds)
    assert replace(seen, approval=replace(seen.approval, expires=expires), now=now).fact is expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("http_400", Fact.REFUSED),
        ("http_405", Fact.REFUSED),
        ("http_404", Fact.NOT_REACHED),
        ("http_429", Fact.NOT_REACHED),
        ("refused", Fact.NOT_REACHED),
        ("unreachable", Fact.NOT_REACHED),
        ("http_503", Fact.SERVER_ERROR),
        ("timeout", Fact.LOST),
        ("connection", Fact.LOST),
        ("a word of tomorrow", Fact.LOST),
    ],
)
def test_what_imds_answered(reason: str, expected: Fact) -> None:
    """An answer that is not known to be harmless may have started the event."""
    assert answer_of(ImdsError("no", reason=reason), refused_before=False) is expected
    again = Fact.REFUSED_AGAIN if expected is Fact.REFUSED else expected
    assert answer_of(ImdsError("no", reason=reason), refused_before=True) is again
    assert answer_of(None, refused_before=False) is Fact.OK


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
    """The printed table has a line for each fact and a column for each stage."""
    rows = {row[0]: row[1:] for row in printed()}
    assert rows["none of these"] == (*("**POST**",) * 4, "", "`confirmed`")
    assert rows["its command has expired"][0] == "`failed`: `expired`"
    assert "`event_changed`" in rows[Fact.CHANGED.value][0]
