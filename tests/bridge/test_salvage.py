"""What is intact of a damaged store is delivered by the new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from store_helpers import NOW, bridge_draft, draft, opened, sequences

from bridge import storefile
from bridge.outbox import Outbox
from bridge.store import CONDEMNED_NAME
from bridge.storefile import FILE_NAME, open_store, put_aside
from bridge.storereset import put_file_aside
from bridge.tidemark import FILE_NAME as TIDEMARK
from sinks.record import BRIDGE_STORE_RESET, EventRecord
from sinks.samples import SAMPLE_VM


def everything(kind: str, affects: bool | None) -> bool:
    """What a sink without filters says."""
    return True


def used(directory: Path) -> list[EventRecord]:
    """A store of ten records, found damaged: `fast` has had eight and refused the second of them,
    `slow` four.
    """
    with opened(directory) as store:
        outbox = Outbox(store)
        outbox.register(["fast", "slow"])
        records = store.commit([draft(number) for number in range(1, 11)])
        for sink, count in (("fast", 8), ("slow", 4)):
            batch = outbox.next(sink, everything, count)
            assert batch
            outbox.delivered(sink, batch)
        outbox.park("fast", 2, reason="no", attempts=1, now=NOW)
    (directory / CONDEMNED_NAME).touch()
    return records


def change(directory: Path, statement: str) -> None:
    """Change the store behind everybody's back."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection, connection:
        connection.execute(statement)


def delivered(directory: Path) -> tuple[str, dict[str, list[EventRecord]], list[tuple[str, int]]]:
    """Why the store was reset, what each sink gets of the old one, and what is dead."""
    store, reset = open_store(directory, NOW)
    with closing(store):
        outbox = Outbox(store)
        outbox.register(["fast", "slow"])
        got: dict[str, list[EventRecord]] = {"fast": [], "slow": []}
        for sink in got:
            while batch := outbox.next(sink, everything, 3):
                got[sink] += batch.records
                outbox.delivered(sink, batch)
        dead = [(each.sink, each.sequence) for each in outbox.dead.shown()]
        assert sequences(store.commit([draft(11)])) == [store.head]
    assert reset is not None
    return reset.reason, got, dead


def test_each_sink_gets_what_it_has_not_had(tmp_path: Path) -> None:
    """The same records in the same places, from where each sink was; what was dead stays so."""
    records = used(tmp_path)
    reason, got, dead = delivered(tmp_path)
    assert got == {"fast": records[8:], "slow": records[4:]}
    assert dead == [("fast", 2)]
    assert reason.endswith("; 7 of its records are still delivered, where they are due")


def test_the_new_stream_counts_on(tmp_path: Path) -> None:
    """No number is given twice, though the new stream is another."""
    used(tmp_path)
    store, _ = open_store(tmp_path, NOW)
    with closing(store):
        assert sequences(store.commit([draft(11)])) == [11]


@pytest.mark.parametrize(
    ("damage", "slow"),
    [
        ("UPDATE records SET body = x'00' WHERE sequence = 6", [5, 7, 8, 9, 10]),
        ("UPDATE records SET crc = crc + 1 WHERE sequence = 6", [5, 7, 8, 9, 10]),
        ("UPDATE records SET sequence = 99 WHERE sequence = 6", [5, 7, 8, 9, 10]),
        ("UPDATE records SET sequence = 0 WHERE sequence = 6", [5, 7, 8, 9, 10]),
        ("DELETE FROM records WHERE sequence = 6", [5, 7, 8, 9, 10]),
        ("UPDATE meta SET value = '3' WHERE key = 'sequence'", [5, 6, 7, 8, 9, 10]),
        ("DELETE FROM meta WHERE key = 'sequence'", [5, 6, 7, 8, 9, 10]),
        ("DROP TABLE meta", [5, 6, 7, 8, 9, 10]),
        ("UPDATE records SET sequence = 1 << 60 WHERE sequence = 1", [5, 6, 7, 8, 9, 10]),
        ("DROP TABLE dead", [5, 6, 7, 8, 9, 10]),
        ("UPDATE dead SET attempts = 'x'", [5, 6, 7, 8, 9, 10]),
    ],
)
def test_only_what_is_whole_is_taken(tmp_path: Path, damage: str, slow: list[int]) -> None:
    """A damaged record is left where it is; damage elsewhere costs none."""
    used(tmp_path)
    change(tmp_path, damage)
    _, got, _ = delivered(tmp_path)
    assert sequences(got["slow"]) == slow


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sinks SET cursor = 9",
        "UPDATE sinks SET name = name || 'x'",
        "DELETE FROM sinks",
        "DROP TABLE sinks",
        "UPDATE meta SET value = '[]' WHERE key = 'sinks'",
        "DELETE FROM meta WHERE key = 'sinks'",
    ],
)
def test_where_nobody_knows_who_had_what(tmp_path: Path, damage: str) -> None:
    """Everything that is kept is delivered again rather than some of it never."""
    used(tmp_path)
    change(tmp_path, damage)
    _, got, _ = delivered(tmp_path)
    assert set(range(5, 11)) <= set(sequences(got["slow"]))
    assert {9, 10} <= set(sequences(got["fast"]))


def test_without_a_tidemark_the_stores_own_number_counts(tmp_path: Path) -> None:
    """The note beside it is only a help."""
    records = used(tmp_path)
    (tmp_path / TIDEMARK).unlink()
    assert delivered(tmp_path)[1]["slow"] == records[4:]


def cut(path: Path) -> None:
    """Half of the file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    """Nothing that could be read."""
    path.write_bytes(b"no store\n" * 5000)


def rename_index(path: Path) -> None:
    """One table's description makes no sense; the others do."""
    path.write_bytes(path.read_bytes().replace(b"INDEX waiting", b"INDE\x90 waiting"))


def test_a_damaged_description_hides_nothing_else(tmp_path: Path) -> None:
    """SQLite refuses the file; its tables are read all the same."""
    records = used(tmp_path)
    rename_index(tmp_path / FILE_NAME)
    assert delivered(tmp_path)[1] == {"fast": records[8:], "slow": records[4:]}


@pytest.mark.parametrize("damage", [cut, garble])
def test_a_file_that_is_hardly_one(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """What cannot be read is no obstacle: the new store goes on."""
    used(tmp_path)
    damage(tmp_path / FILE_NAME)
    _, got, _ = delivered(tmp_path)
    assert set(sequences(got["slow"])) <= set(range(1, 11))


def test_another_vms_store_is_not_ours_to_deliver(tmp_path: Path) -> None:
    """Not even where a kill came before the reset was told."""
    used(tmp_path)
    (tmp_path / CONDEMNED_NAME).unlink()
    store, _ = open_store(tmp_path, NOW)
    store, _ = put_aside(store, NOW, reason="it belongs to another VM")
    store.close()
    reason, got, dead = delivered(tmp_path)
    assert (reason, got, dead) == ("it belongs to another VM", {"fast": [], "slow": []}, [])


def test_whose_store_it_was_is_remembered(tmp_path: Path) -> None:
    """So that one that came along in a disk image is not taken for ours."""
    with opened(tmp_path) as store:
        store.keep_identity(SAMPLE_VM)
    used(tmp_path)
    with opened(tmp_path) as store:
        assert store.identity() == SAMPLE_VM


@pytest.mark.parametrize("begun", [False, True])
def test_a_kill_after_it_was_put_aside(tmp_path: Path, *, begun: bool) -> None:
    """Whether the new store had been made or not: the next start tells it, and delivers."""
    records = used(tmp_path)
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        ((stream,),) = connection.execute("SELECT value FROM meta WHERE key = 'stream'").fetchall()
    put_file_aside(path, NOW, reason="it was found damaged while it was in use")
    if begun:
        storefile._open(path, 0).close()
    store, reset = open_store(tmp_path, NOW)
    store.close()
    assert reset is not None
    assert (reset.previous_stream, "put aside" in reset.reason) == (stream, True)
    assert delivered(tmp_path)[1] == {"fast": records[8:], "slow": records[4:]}


def test_what_was_put_aside_long_ago_is_not_delivered_again(tmp_path: Path) -> None:
    """A store that is deleted later on is not the one that was damaged then."""
    used(tmp_path)
    store, _ = open_store(tmp_path, NOW)
    store.commit([bridge_draft(BRIDGE_STORE_RESET)])
    store.mark_looked(NOW + timedelta(seconds=1))
    store.close()
    (tmp_path / FILE_NAME).unlink()
    reason, got, _ = delivered(tmp_path)
    assert (reason, got) == ("the file is missing", {"fast": [], "slow": []})


def test_a_kill_before_it_is_taken_over_puts_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start does it: the reset is not told yet, and nothing has been counted."""
    records = used(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("bridge.storefile.take_over", lambda kept, store: 0)
        open_store(tmp_path, NOW)[0].close()
    assert delivered(tmp_path)[1] == {"fast": records[8:], "slow": records[4:]}
