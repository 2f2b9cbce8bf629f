from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.imds.polling import records_of
from support.store_helpers import AN_APPROVAL, NOW, observer, opened

from bridge.approval.ledger import Ledger
from bridge.approval.verification import SKEW_SECONDS
from bridge.store.approvals import KEEP, KEEP_TIME, Effect, State, approved_revisions
from bridge.store.database import RESET_KEY, Store


@pytest.fixture
def ledger(store: Store) -> Ledger:
    """Its ledger."""
    return Ledger(store, NOW)


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


def test_a_cause_and_its_receipt_come_together(store: Store, ledger: Ledger) -> None:
    """A state and its receipt are committed in one transaction."""
    assert not ledger.has(AN_APPROVAL.cause)
    ledger.save_with_receipt(AN_APPROVAL, observer(), NOW)
    assert ledger.has(AN_APPROVAL.cause)
    assert ledger.unfinished() == [AN_APPROVAL]
    failed = replace(AN_APPROVAL, state="failed", reason="event_changed")
    ledger.save_with_receipt(failed, observer(), NOW)
    assert ledger.unfinished() == []
    told = [(each.data["state"], each.data["reason"]) for each in records_of(store)]
    assert told == [("accepted", None), ("failed", "event_changed")]


def test_what_requests_may_have_caused_is_remembered(tmp_path: Path) -> None:
    """Whether a request may have had an effect is stored without a receipt, and survives a
    restart.
    """
    with opened(tmp_path) as store:
        ledger = Ledger(store, NOW)
        ledger.save_with_receipt(AN_APPROVAL, observer(), NOW)
        ledger.save(replace(AN_APPROVAL, effect="in vain"), NOW)
        assert len(records_of(store)) == 1
    with opened(tmp_path) as store:
        ledger = Ledger(store, NOW)
        assert ledger.unfinished() == [replace(AN_APPROVAL, effect="in vain")]
        ledger.save(replace(AN_APPROVAL, effect="maybe"), NOW)
        assert ledger.unfinished() == [replace(AN_APPROVAL, effect="maybe")]


def test_a_ping_has_nothing_to_finish(ledger: Ledger) -> None:
    """A ping is used up at once, and its approval is not open."""
    ledger.save_with_receipt(replace(AN_APPROVAL, event_id=None), observer(), NOW)
    assert ledger.has(AN_APPROVAL.cause)
    assert ledger.unfinished() == []


def test_old_causes_are_forgotten_beyond_a_number(store: Store, ledger: Ledger) -> None:
    """Beyond a number, the oldest causes are deleted."""
    fill(store, KEEP)
    fill(store, 50, days=-60)
    ledger.save_with_receipt(AN_APPROVAL, observer(), NOW)
    assert count(store) == KEEP
    assert not ledger.has("confirmed -60 49")
    assert ledger.has("confirmed -30 49")
    assert ledger.has(AN_APPROVAL.cause)


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps_forgets_no_cause(store: Store, ledger: Ledger, years: int) -> None:
    """A clock that is set forward and back does not make a used token valid."""
    ledger.save_with_receipt(replace(AN_APPROVAL, state="confirmed"), observer(), NOW)
    far = NOW + timedelta(days=365 * years)
    Ledger(store, far).save_with_receipt(
        replace(AN_APPROVAL, cause="far", state="confirmed"), observer(), far
    )
    assert Ledger(store, NOW).has(AN_APPROVAL.cause)


def test_what_is_under_way_or_new_is_never_forgotten(store: Store, ledger: Ledger) -> None:
    """Open approvals, and those of the last day, are kept whatever their number."""
    fill(store, KEEP)
    fill(store, 20, state="posted", days=-90)
    fill(store, 30, days=-0.9)
    ledger.save_with_receipt(AN_APPROVAL, observer(), NOW)
    assert count(store) == KEEP
    assert [
        len(ledger.unfinished()),
        sum(ledger.has(f"confirmed -0.9 {place}") for place in range(30)),
    ] == [20 + 1, 30]


def test_a_ledger_that_was_lost_knows_of_no_token_from_before(tmp_path: Path) -> None:
    """After a loss of the ledger, every token from before it counts as used, also with a clock a
    little ahead.
    """
    with opened(tmp_path) as store:
        assert not Ledger(store, NOW).may_have_lost(0, NOW)
        store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
        Ledger(store, NOW)
        store.commit(meta={RESET_KEY: "null"})
    with opened(tmp_path) as store:
        ledger, then = Ledger(store, NOW + KEEP_TIME), int(NOW.timestamp())
        offsets = (-1, 0, SKEW_SECONDS, SKEW_SECONDS + 1)
        lost = [ledger.may_have_lost(then + each, NOW) for each in offsets]
        assert lost == [True, True, True, False]


def test_a_clock_that_was_wrong_when_the_ledger_was_lost(store: Store) -> None:
    """After a loss with a wrong clock, valid commands are refused only as long as the clock is
    wrong.
    """
    later = NOW + timedelta(days=9999)
    store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
    ledger = Ledger(store, later)
    assert not ledger.may_have_lost(int(NOW.timestamp()), NOW)


def test_a_clock_that_was_behind_when_the_ledger_was_lost(store: Store) -> None:
    """What was issued until the last poll before the loss may have been used, although the clock
    was behind when the loss was noticed.
    """
    store.mark_polled(NOW)
    store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
    behind = NOW - timedelta(seconds=300)
    ledger, issued = Ledger(store, behind), int(NOW.timestamp()) - 10
    for now in (NOW - timedelta(seconds=SKEW_SECONDS), NOW, NOW + timedelta(seconds=10)):
        assert ledger.may_have_lost(issued, now)
    assert not ledger.may_have_lost(issued + 10 + SKEW_SECONDS + 1, NOW + timedelta(seconds=120))


def test_which_events_may_have_been_started_from_here(store: Store, ledger: Ledger) -> None:
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
        ledger.save_with_receipt(approval, observer(), NOW)
    assert approved_revisions(store).keys() == {"e-a", "e-e", "e-p", "e-c", "e-w"}
