from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.imds.polling import records_of
from support.store_helpers import ENTRY, NOW, observer, opened

from bridge.approval.ledger import Ledger
from bridge.approval.verification import SKEW_SECONDS
from bridge.store.approvals import KEEP, KEEP_TIME, State, approved_events
from bridge.store.database import RESET_KEY, Store


@pytest.fixture
def ledger(store: Store) -> Ledger:
    """Its ledger."""
    return Ledger(store, NOW)


def count(store: Store) -> int:
    """How many causes are remembered."""
    return int(store.read("SELECT count(*) FROM approvals")[0][0])


def fill(store: Store, number: int, *, state: str = "confirmed", days: float = -30) -> None:
    """So many causes of some days ago."""
    time = f"{NOW + timedelta(days=days):%Y-%m-%dT%H:%M:%S}.000Z"
    with store.transaction() as connection:
        connection.executemany(
            "INSERT INTO approvals "
            "VALUES (?, ?, 'j', 'e', 'f', 'a', 'i', '[]', ?, NULL, 'maybe', NULL)",
            [(f"{state} {days} {place}", time, state) for place in range(number)],
        )


def test_a_cause_and_its_receipt_come_together(store: Store, ledger: Ledger) -> None:
    """A state is on disk with the receipt that says so."""
    assert not ledger.has(ENTRY.cause)
    accepted = ledger.write(ENTRY, observer(), NOW, state="accepted")
    assert ledger.has(ENTRY.cause)
    assert [accepted] == ledger.unfinished()
    ledger.write(accepted, observer(), NOW, state="failed", reason="event_changed")
    assert ledger.unfinished() == []
    told = [(each.data["state"], each.data["reason"]) for each in records_of(store)]
    assert told == [("accepted", None), ("failed", "event_changed")]


def test_what_imds_may_have_got_is_remembered(tmp_path: Path) -> None:
    """Whether a request may have had its effect survives a restart."""
    with opened(tmp_path) as store:
        ledger = Ledger(store, NOW)
        entry = ledger.write(ENTRY, observer(), NOW, state="accepted")
        assert entry.asked == "maybe"
        vain = ledger.asked(entry, "in vain", NOW)
        assert vain is ledger.asked(vain, "in vain", NOW)
    with opened(tmp_path) as store:
        ledger = Ledger(store, NOW)
        assert [replace(entry, asked="in vain")] == ledger.unfinished()
        ledger.asked(ledger.unfinished()[0], "maybe", NOW)
        assert [entry] == ledger.unfinished()


def test_a_ping_has_nothing_to_finish(ledger: Ledger) -> None:
    """A ping is used up, and there is nothing more to do about it."""
    ledger.write(replace(ENTRY, event_id=None), observer(), NOW, state="accepted")
    assert ledger.has(ENTRY.cause)
    assert ledger.unfinished() == []


def test_old_causes_are_forgotten_beyond_a_number(store: Store, ledger: Ledger) -> None:
    """The ledger does not grow for ever: beyond a number, the oldest go."""
    fill(store, KEEP)
    fill(store, 50, days=-60)
    ledger.write(ENTRY, observer(), NOW, state="accepted")
    assert count(store) == KEEP
    assert not ledger.has("confirmed -60 49")
    assert ledger.has("confirmed -30 49")
    assert ledger.has(ENTRY.cause)


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps_forgets_no_cause(store: Store, ledger: Ledger, years: int) -> None:
    """Set forward and back again, a clock must not make a used token good."""
    ledger.write(ENTRY, observer(), NOW, state="confirmed")
    far = NOW + timedelta(days=365 * years)
    Ledger(store, far).write(replace(ENTRY, cause="far"), observer(), far, state="confirmed")
    assert Ledger(store, NOW).has(ENTRY.cause)


def test_what_is_under_way_or_new_is_never_forgotten(store: Store, ledger: Ledger) -> None:
    """An approval without its end, and what is younger than a day, are kept however many."""
    fill(store, KEEP)
    fill(store, 20, state="posted", days=-90)
    fill(store, 30, days=-0.9)
    ledger.write(ENTRY, observer(), NOW, state="accepted")
    assert count(store) == KEEP
    assert [
        len(ledger.unfinished()),
        sum(ledger.has(f"confirmed -0.9 {place}") for place in range(30)),
    ] == [20 + 1, 30]


def test_a_ledger_that_was_lost_knows_of_no_token_from_before(tmp_path: Path) -> None:
    """With the store, the ledger is lost: what was issued before may have been used, and so may
    what a clock a little ahead of ours has issued.
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


def test_a_clock_that_was_wrong_when_the_ledger_was_lost_blocks_nobody(store: Store) -> None:
    """A VM that boots in the wrong year refuses good commands no longer than its clock is wrong."""
    later = NOW + timedelta(days=9999)
    store.commit(meta={RESET_KEY: '{"reason": "it is gone"}'})
    ledger = Ledger(store, later)
    assert not ledger.may_have_lost(int(NOW.timestamp()), NOW)


def test_which_events_may_have_been_started_from_here(store: Store, ledger: Ledger) -> None:
    """Not what IMDS refused, what never reached it, nor what was rejected."""
    tried: list[tuple[str, State]] = [
        ("E-A", "accepted"),
        ("E-P", "posted"),
        ("E-C", "confirmed"),
        ("E-F", "failed"),
        ("E-R", "rejected"),
        ("E-V", "accepted"),
    ]
    for event_id, state in tried:
        entry = replace(ENTRY, cause=event_id, event_id=event_id)
        written = ledger.write(entry, observer(), NOW, state=state)
        if event_id == "E-V":
            ledger.asked(written, "in vain", NOW)
    assert approved_events(store) == {"e-a", "e-p", "e-c"}
