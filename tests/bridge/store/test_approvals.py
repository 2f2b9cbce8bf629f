"""What the store keeps of approvals."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.imds.poller_bench import records_of
from support.store_helpers import AN_APPROVAL, NOW, observer, opened

from bridge.approval.approval_values import receipt
from bridge.store.approvals import (
    KEEP,
    KEEP_TIME,
    Approval,
    ApprovalStore,
    Effect,
    State,
    approved_revisions,
)
from bridge.store.database import RESET_KEY, Store

SKEW = 5.0


@pytest.fixture
def approvals(store: Store) -> ApprovalStore:
    """The approvals of the store."""
    return ApprovalStore(store, NOW)


def save(approvals: ApprovalStore, approval: Approval, now: datetime = NOW) -> None:
    """Save an approval with its receipt."""
    approvals.save(approval, now, receipt(approval, observer(), now))


def count(store: Store) -> int:
    """Return how many causes are stored."""
    return int(store.read("SELECT count(*) FROM approvals")[0][0])


def fill(store: Store, number: int, *, state: str = "confirmed", days: float = -30) -> None:
    """Store so many causes of some days ago."""
    time = f"{NOW + timedelta(days=days):%Y-%m-%dT%H:%M:%S}.000Z"
    with store.transaction() as connection:
        connection.executemany(
            "INSERT INTO approvals "
            "(cause, time, jti, event, fingerprint, actor, issuer, resources, state, asked) "
            "VALUES (?, ?, 'j', 'e', 'f', 'a', 'i', '[]', ?, 'maybe')",
            [(f"{state} {days} {place}", time, state) for place in range(number)],
        )


def test_a_cause_and_its_receipt_come_together(store: Store, approvals: ApprovalStore) -> None:
    """A state and its receipt are committed in one transaction."""
    assert not approvals.has(AN_APPROVAL.cause)
    save(approvals, AN_APPROVAL)
    assert approvals.has(AN_APPROVAL.cause)
    assert approvals.unfinished() == [AN_APPROVAL]
    failed = replace(AN_APPROVAL, state="failed", reason="event_changed")
    save(approvals, failed)
    assert approvals.unfinished() == []
    told = [(each.data["state"], each.data["reason"]) for each in records_of(store)]
    assert told == [("accepted", None), ("failed", "event_changed")]


def test_what_requests_may_have_caused_is_remembered(tmp_path: Path) -> None:
    """Whether a request may have had an effect is stored without a receipt, and survives a
    restart.
    """
    with opened(tmp_path) as store:
        approvals = ApprovalStore(store, NOW)
        save(approvals, AN_APPROVAL)
        approvals.save(replace(AN_APPROVAL, effect="in vain"), NOW)
        assert len(records_of(store)) == 1
    with opened(tmp_path) as store:
        approvals = ApprovalStore(store, NOW)
        assert approvals.unfinished() == [replace(AN_APPROVAL, effect="in vain")]
        approvals.save(replace(AN_APPROVAL, effect="maybe"), NOW)
        assert approvals.unfinished() == [replace(AN_APPROVAL, effect="maybe")]


def test_a_ping_has_nothing_to_finish(approvals: ApprovalStore) -> None:
    """A ping is used up at once, and its approval is not open."""
    save(approvals, replace(AN_APPROVAL, event_id=None))
    assert approvals.has(AN_APPROVAL.cause)
    assert approvals.unfinished() == []


def test_old_causes_are_forgotten_beyond_a_number(store: Store, approvals: ApprovalStore) -> None:
    """Beyond a number, the oldest causes are deleted."""
    fill(store, KEEP)
    fill(store, 50, days=-60)
    save(approvals, AN_APPROVAL)
    assert count(store) == KEEP
    assert not approvals.has("confirmed -60 49")
    assert approvals.has("confirmed -30 49")
    assert approvals.has(AN_APPROVAL.cause)


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps_forgets_no_cause(
    store: Store, approvals: ApprovalStore, years: int
) -> None:
    """A clock that is set forward and back does not make a used token valid."""
    save(approvals, replace(AN_APPROVAL, state="confirmed"))
    far = NOW + timedelta(days=365 * years)
    save(ApprovalStore(store, far), replace(AN_APPROVAL, cause="far", state="confirmed"), far)
    assert ApprovalStore(store, NOW).has(AN_APPROVAL.cause)


def test_what_is_under_way_or_new_is_never_forgotten(
    store: Store, approvals: ApprovalStore
) -> None:
    """Open approvals, and those of the last day, are kept whatever their number."""
    fill(store, KEEP)
    fill(store, 20, state="posted", days=-90)
    fill(store, 30, days=-0.9)
    save(approvals, AN_APPROVAL)
    assert count(store) == KEEP
    assert [
        len(approvals.unfinished()),
        sum(approvals.has(f"confirmed -0.9 {place}") for place in range(30)),
    ] == [20 + 1, 30]


def test_approvals_that_were_lost_know_of_no_token_from_before(tmp_path: Path) -> None:
    """After a loss of the approvals, every token from before it counts as used, also with a clock a
    little ahead.
    """
    with opened(tmp_path) as store:
        assert not ApprovalStore(store, NOW).may_have_lost(0, NOW, skew=SKEW)
        store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
        ApprovalStore(store, NOW)
        store.commit(meta={RESET_KEY: "null"})
    with opened(tmp_path) as store:
        approvals, then = ApprovalStore(store, NOW + KEEP_TIME), int(NOW.timestamp())
        offsets = (-1, 0, SKEW, SKEW + 1)
        lost = [approvals.may_have_lost(then + each, NOW, skew=SKEW) for each in offsets]
        assert lost == [True, True, True, False]


def test_a_clock_that_was_wrong_when_approvals_were_lost(store: Store) -> None:
    """After a loss with a wrong clock, valid commands are refused only as long as the clock is
    wrong.
    """
    later = NOW + timedelta(days=9999)
    store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
    approvals = ApprovalStore(store, later)
    assert not approvals.may_have_lost(int(NOW.timestamp()), NOW, skew=SKEW)


def test_a_clock_that_was_behind_when_approvals_were_lost(store: Store) -> None:
    """What was issued until the last poll before the loss may have been used, although the clock
    was behind when the loss was noticed.
    """
    store.mark_polled(NOW)
    store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
    behind = NOW - timedelta(seconds=300)
    approvals, issued = ApprovalStore(store, behind), int(NOW.timestamp()) - 10
    for now in (NOW - timedelta(seconds=SKEW), NOW, NOW + timedelta(seconds=10)):
        assert approvals.may_have_lost(issued, now, skew=SKEW)
    later = NOW + timedelta(seconds=120)
    assert not approvals.may_have_lost(issued + 10 + SKEW + 1, later, skew=SKEW)


def test_which_events_may_have_been_started_from_here(
    store: Store, approvals: ApprovalStore
) -> None:
    """An event may have been started here unless IMDS refused, could not be reached, or the
    approval was rejected.
    """
    tried: list[tuple[str, State, Effect, str | None]] = [
        ("E-A", "accepted", "maybe", None),
        ("E-E", "accepted", "error", None),
        ("E-P", "posted", "maybe", None),
        ("E-C", "confirmed", "maybe", None),
        ("E-F", "failed", "maybe", "imds_refused"),
        ("E-W", "failed", "error", "not_allowed"),
        ("E-R", "rejected", "none", "not_allowed"),
        ("E-V", "accepted", "in vain", None),
        ("E-N", "accepted", "none", None),
    ]
    for event_id, state, effect, reason in tried:
        changes: dict[str, Any] = {"cause": event_id, "event_id": event_id, "reason": reason}
        approval = replace(AN_APPROVAL, **changes, state=state, effect=effect)
        save(approvals, approval)
    assert approved_revisions(store).keys() == {"e-a", "e-e", "e-p", "e-c", "e-w"}
