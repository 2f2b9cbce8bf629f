"""The newest records of the store, as pages list them."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.store_helpers import bridge_draft, draft

from bridge.store.database import Store, StoreError
from bridge.store.history import MAX_BYTES, History, KeptRecord
from wire.record import BRIDGE_HEARTBEAT, Record


def kept(found: Sequence[KeptRecord]) -> list[tuple[int, bytes]]:
    """Return the records that were found, as plain values."""
    return [(each.sequence, each.body) for each in found]


def of(records: Sequence[Record]) -> list[tuple[int, bytes]]:
    """Return what the history should find of these records."""
    return [(each.sequence, each.body) for each in records]


def test_the_last_records_come_oldest_first(store: Store) -> None:
    """The newest records are returned, as many as requested, the oldest first."""
    records = store.commit([draft(number) for number in range(5)])
    assert kept(History(store).last(3)) == of(records[2:])


def test_heartbeats_are_left_out(store: Store) -> None:
    """The history has no heartbeats, which would hide everything else."""
    (news,) = store.commit([draft(1)])
    store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
    history = History(store)
    assert kept(history.last(9)) == kept(history.after(0, 9)) == of([news])
    assert history.last_sequence == 1


def test_what_comes_after_a_place_is_given_from_there(store: Store) -> None:
    """A reader gets all records after its place."""
    records = store.commit([draft(number) for number in range(5)])
    assert kept(History(store).after(records[1].sequence, 2)) == of(records[2:4])


def test_a_damaged_record_is_not_shown(store: Store) -> None:
    """A damaged record is left out, and the others are returned."""
    records = store.commit([draft(1), draft(2), draft(3)])
    with store.transaction() as connection:
        connection.execute("UPDATE records SET body = x'00' WHERE sequence = 2")
    assert kept(History(store).last(9)) == of([records[0], records[2]])


@pytest.mark.parametrize("commits", [True, False])
def test_a_waiting_reader_is_woken(store: Store, *, commits: bool) -> None:
    """A commit wakes a waiting reader at once, and so does the end, without a record."""
    history = History(store)
    store.subscribe(history.note_committed)
    woken = list[bool]()
    waiting = threading.Thread(target=lambda: woken.append(history.wait(0, 60.0)))
    waiting.start()
    if commits:
        store.commit([draft(1)])
    else:
        history.close()
    waiting.join(30.0)
    assert (woken, history.is_closed) == ([commits], not commits)


def test_nothing_new_is_waited_for_no_longer_than_asked(store: Store) -> None:
    """`wait` returns False when the given time is over."""
    assert not History(store).wait(0, 0.01)


def test_an_answer_has_a_size(store: Store) -> None:
    """The records of an answer have a limited size; a record above it is returned alone."""
    large = [replace(draft(number), data={"x": "y" * (MAX_BYTES // 2)}) for number in range(4)]
    records = store.commit(large)
    history = History(store)
    assert kept(history.last(9)) == of(records[3:])
    assert kept(history.after(0, 9)) == of(records[:1])


def test_a_reader_does_not_wait_for_a_store_that_is_stuck(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader raises soon if the store's disk does not answer."""
    monkeypatch.setattr("bridge.store.history.PATIENCE_SECONDS", 0.01)
    busy, done = threading.Event(), threading.Event()

    def hang() -> None:
        with store.transaction():
            busy.set()
            done.wait(30.0)

    stuck = threading.Thread(target=hang)
    stuck.start()
    busy.wait(30.0)
    with pytest.raises(StoreError, match="busy"):
        History(store).last(9)
    done.set()
    stuck.join(30.0)
