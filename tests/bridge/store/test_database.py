"""The store: document and records are one transaction, on disk before any record is sent."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.store_helpers import (
    NOW,
    bridge_draft,
    draft,
    environment,
    event_row,
    opened,
    recipients,
    sequences,
)

from bridge.store import retention
from bridge.store.ballast import FILE_NAME as BALLAST_NAME
from bridge.store.database import POLLED_NAME, Store, StoreError
from bridge.store.opening import open_store
from bridge.store.outbox import Outbox
from sinks.samples import SAMPLE_VM
from wire.record import BRIDGE_HEARTBEAT, BRIDGE_STARTED, read_record

TWO_WRITES = """
import os, sys
from pathlib import Path
from support.store_helpers import NOW, draft, recipients
from bridge.store.outbox import Outbox
from bridge.store.opening import open_store

store, _ = open_store(Path(sys.argv[1]), NOW)
outbox = Outbox(store)
outbox.register(recipients("ops"))
store.commit([draft(1)])
os.write(1, b"begin")
store.commit([draft(2)])
os.write(1, b"committed")
outbox.move_past("ops", outbox.next("ops", 10))
os.write(1, b"marked")
store.commit([draft(3)])
os.write(1, b"again")
"""


def bodies(store: Store) -> list[bytes]:
    """Return the bytes of every record that is kept."""
    return [body for (body,) in store.read("SELECT body FROM records ORDER BY sequence")]


def test_records_get_their_place_in_the_stream(store: Store) -> None:
    """Each record gets the next number, in 20 digits, and the stream's id."""
    first = store.commit([draft(1), draft(2)])
    second = store.commit([draft(3)])
    assert sequences([*first, *second]) == [1, 2, 3]
    assert b'"sequence":"00000000000000000003"' in second[0].body
    assert {store.stream} == {record.stream for record in first + second}


def test_a_store_counts_on_after_it_is_opened_again(tmp_path: Path) -> None:
    """After a restart the sequence and the stream continue."""
    with opened(tmp_path) as store:
        store.commit([draft(1), draft(2)])
        stream = store.stream
    with opened(tmp_path) as store:
        assert ([3], stream) == (sequences(store.commit([draft(3)])), store.stream)


def test_document_and_records_are_one_transaction(store: Store) -> None:
    """If the last step of a commit fails, neither document nor record nor number has changed."""

    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("no")

    with pytest.raises(StoreError):
        store.commit([draft(1)], events=[event_row("A")], meta={"incarnation": "7"}, also=fail)
    seen = store.last_seen()
    assert (store.head, seen.events, seen.incarnation, bodies(store)) == (0, {}, None, [])
    assert sequences(store.commit([draft(1)])) == [1]


def test_a_bug_within_a_transaction_rolls_back(store: Store) -> None:
    """Any exception undoes the transaction, and is raised unchanged."""
    with pytest.raises(ZeroDivisionError), store.transaction() as connection:  # noqa: PT012
        connection.execute("INSERT INTO meta VALUES ('half', 'done')")
        raise ZeroDivisionError
    assert store.read("SELECT value FROM meta WHERE key = 'half'") == []


def test_what_was_seen_is_remembered(tmp_path: Path) -> None:
    """Events, incarnation and boot id are read as they were committed."""
    event = event_row("A")
    with opened(tmp_path) as store:
        store.commit(events=[event], meta={"incarnation": "279", "boot_id": "b"})
        store.mark_polled(NOW, uptime=12.5)
    with opened(tmp_path) as store:
        seen = store.last_seen()
    assert ({event.key: event.value}, 279, "b", NOW) == (
        seen.events,
        seen.incarnation,
        seen.boot_id,
        seen.polled_at,
    )
    assert seen.polled_uptime == 12.5
    with opened(tmp_path) as store:
        store.mark_polled(NOW)
        assert store.last_seen().polled_uptime is None


def test_a_copy_that_keeps_no_times_tells_of_the_last_poll(tmp_path: Path) -> None:
    """The time of the last poll is written in the file, so a later copy of the directory does not
    look like a poll.
    """
    with opened(tmp_path) as store:
        store.mark_polled(NOW + timedelta(hours=1))
        store.mark_polled(NOW)
    (tmp_path / POLLED_NAME).touch()
    with opened(tmp_path) as store:
        assert store.polled_at() == NOW


@pytest.mark.parametrize("content", ["", "2026-01-01T00:00:00", "no time"])
def test_a_time_that_is_not_in_the_file_is_its_modification_time(
    tmp_path: Path, content: str
) -> None:
    """If the file is empty, as 0.2.0 left it, or damaged by a power failure, its modification time
    is the time of the last poll.
    """
    with opened(tmp_path) as store:
        (tmp_path / POLLED_NAME).write_text(content)
        os.utime(tmp_path / POLLED_NAME, (NOW.timestamp(), NOW.timestamp()))
        assert store.polled_at() == NOW
        later = NOW + timedelta(hours=1)
        store.mark_polled(later)
        assert store.polled_at() == later


def test_the_identity_is_kept(tmp_path: Path) -> None:
    """A start without IMDS reads the stored VM identity."""
    with opened(tmp_path) as store:
        assert store.identity() is None
        store.save_identity(SAMPLE_VM, "boot-1")
    with opened(tmp_path) as store:
        assert store.identity() == SAMPLE_VM


def test_listeners_get_every_commit_of_records(store: Store) -> None:
    """Each listener is called in order, once the records are on disk; a commit without records and
    a failed one call none.
    """
    heard: list[tuple[str, list[int], int]] = []
    for name in ("first", "second"):
        store.subscribe(
            lambda records, name=name: heard.append((name, sequences(records), len(bodies(store))))
        )
    store.commit([draft(1), draft(2)])
    store.commit(meta={"incarnation": "7"})

    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("no")

    with pytest.raises(StoreError):
        store.commit([draft(3)], also=fail)
    assert heard == [("first", [1, 2], 2), ("second", [1, 2], 2)]


def test_only_the_newest_heartbeat_is_kept(store: Store) -> None:
    """A heartbeat replaces the heartbeat before it, and no other record."""
    for kind in (BRIDGE_STARTED, BRIDGE_HEARTBEAT, BRIDGE_STARTED, BRIDGE_HEARTBEAT):
        store.commit([bridge_draft(kind)])
    assert [read_record(body).sequence for body in bodies(store)] == [1, 3, 4]
    assert store.last_record_sequence == 3


def test_a_dead_heartbeat_survives_the_next(store: Store) -> None:
    """A heartbeat that a sink refused stays readable when a newer one is committed."""
    outbox = Outbox(store)
    outbox.register(recipients("ops"))
    store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
    outbox.mark_dead("ops", 1, reason="no", attempts=1, now=NOW)
    store.commit([bridge_draft(BRIDGE_HEARTBEAT)])
    assert [dead.sequence for dead in outbox.dead.shown()] == [1]


def test_delivered_records_are_forgotten_in_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old delivered records are deleted, except dead ones and the newest of each pending event."""
    monkeypatch.setattr(retention, "KEEP_DELIVERED", 10)
    outbox = Outbox(store)
    outbox.register(recipients("ops"))
    event = "pending-event"
    store.commit([draft(1, event_id=event), draft(2)], events=[event_row(event)])
    outbox.mark_dead("ops", 2, reason="no", attempts=1, now=NOW)
    for number in range(3, 301):
        store.commit([draft(number)])
    assert len(bodies(store)) == 300
    while batch := outbox.next("ops", 100):
        outbox.move_past("ops", batch)
    for number in range(301, 502):
        store.commit([draft(number)])
        store.prune()
    kept = [read_record(body).sequence for body in bodies(store)]
    assert kept[:2] == [1, 2]
    assert kept[2] > 300
    assert kept[2:] == list(range(kept[2], 502))


def test_a_pending_event_that_changes_does_not_fill_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pending event's old records only the newest is kept."""
    monkeypatch.setattr(retention, "KEEP_DELIVERED", 10)
    outbox = Outbox(store)
    outbox.register(recipients("ops"))
    for event in ("quiet", "busy"):
        store.commit([draft(1, event_id=event)], events=[event_row(event)])
    for number in range(3, 400):
        store.commit([draft(number, event_id="busy")])
        while batch := outbox.next("ops", 100):
            outbox.move_past("ops", batch)
        store.prune()
    kept = [read_record(body).sequence for body in bodies(store)]
    assert kept[0] == 1
    assert kept[1:] == list(range(kept[1], 400))
    assert len(kept) <= 10 + retention.PRUNE_EVERY + 1


def test_the_revision_of_a_forgotten_event_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revisions of a limited number of forgotten events are kept; the oldest are deleted
    first.
    """
    monkeypatch.setattr(retention, "KEEP_FORGOTTEN", 2)
    with opened(tmp_path) as store:
        for number in range(5):
            store.commit([draft(number)], events=[event_row(f"E-{number}")])
            store.commit(forgotten={f"e-{number}": number + 7})
        store.prune()
    with opened(tmp_path) as store:
        assert store.last_seen().events == {}
        assert store.last_revisions([f"e-{number}" for number in range(6)]) == {
            "e-3": 10,
            "e-4": 11,
        }


def test_a_store_that_is_put_back_gives_no_id_twice(tmp_path: Path) -> None:
    """After the store was restored from a copy, another fact at the same place of the stream has
    another id.
    """
    with opened(tmp_path / "state") as store:
        store.commit([draft(1)])
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    ids = set()
    for run in ("first", "second"):
        with opened(tmp_path / "state") as store:
            begun = replace(bridge_draft(BRIDGE_STARTED), data={"bridge": {"instanceId": run}})
            (record,) = store.commit([begun])
            assert record.sequence == 2
            ids.add(record.id)
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(tmp_path / "copy", tmp_path / "state")
    assert len(ids) == 2


def test_room_is_given_back_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file shrinks after a large backlog was delivered."""
    monkeypatch.setattr(retention, "FREE_PAGES", 100)
    with opened(tmp_path) as store:
        outbox = Outbox(store)
        outbox.register(recipients("ops"))
        store.commit([draft(number) for number in range(1, 2001)])
        while batch := outbox.next("ops", 1000):
            outbox.move_past("ops", batch)
        ((before,),) = store.read("PRAGMA page_count")
        for _ in range(5):
            store.prune()
        ((after,),) = store.read("PRAGMA page_count")
    assert after < before - 100


def test_a_full_disk_loses_nothing(store: Store, tmp_path: Path) -> None:
    """On a full disk the commit fails as a whole and the ballast is deleted; later the same commit
    succeeds, and the ballast is made again.
    """
    store.commit([draft(1)])
    ((pages,),) = store.read("PRAGMA page_count")
    store.read(f"PRAGMA max_page_count={pages}")
    big = [draft(number) for number in range(2, 40)]
    with pytest.raises(StoreError, match="full"):
        store.commit(big, events=[event_row("A")])
    assert (store.head, store.last_seen().events) == (1, {})
    assert not (tmp_path / BALLAST_NAME).exists()
    store.read("PRAGMA max_page_count=1000000")
    assert list(range(2, 40)) == sequences(store.commit(big, events=[event_row("A")]))
    assert (tmp_path / BALLAST_NAME).stat().st_size == 1 << 20


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """A closed store raises `StoreError`, and not SQLite's own error."""
    store, _ = open_store(tmp_path, NOW)
    store.close()
    with pytest.raises(StoreError):
        store.read("SELECT 1")
    with pytest.raises(StoreError):
        store.commit([draft(1)])


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows the sync")
def test_a_commit_is_synced_before_it_returns(tmp_path: Path) -> None:
    """A commit is synced before it returns, also after an unsynced write of progress."""
    trace = tmp_path / "trace"
    subprocess.run(
        [
            *("strace", "-f", "-e", "trace=write,fdatasync,fsync", "-o", str(trace)),
            *(sys.executable, "-c", TWO_WRITES, str(tmp_path / "state")),
        ],
        env=environment(),
        check=True,
        capture_output=True,
        timeout=60,
    )
    shown = trace.read_text(encoding="utf-8")
    committing = shown[shown.index('"begin"') : shown.index('"committed"')]
    marking = shown[shown.index('"committed"') : shown.index('"marked"')]
    after = shown[shown.index('"marked"') : shown.index('"again"')]
    for commit in (committing, after):
        assert re.search(r"f(data)?sync\(\d+\) += 0", commit)
    assert not re.search(r"f(data)?sync\(", marking)
