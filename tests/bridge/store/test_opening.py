"""Opening the store: it is made, locked, or renamed if it is lost or damaged."""

import errno
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
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

from bridge.store import opening
from bridge.store.database import CONDEMNED_AGAIN, CONDEMNED_NAME, StoreError, condemn
from bridge.store.opening import FILE_NAME, open_store, put_aside
from bridge.store.outbox import Outbox
from bridge.store.recovery import UnreadableError
from sinks.shared.errors import ConfigurationError, SebError, TryLaterError
from wire.bridge import StoreReset
from wire.record import BRIDGE_STORE_RESET

CHECK = "PRAGMA quick_check"
HOLD = """
import sys
from pathlib import Path
from support.store_helpers import NOW
from bridge.store.opening import open_store
store, _ = open_store(Path(sys.argv[1]), NOW)
print("held", flush=True)
sys.stdin.read()
"""


def used(directory: Path, *, records: int = 30) -> str:
    """Make a store that was used and closed; return its stream."""
    with opened(directory) as store:
        Outbox(store).register(recipients("ops"))
        store.commit([draft(n) for n in range(1, records + 1)], events=[event_row("A")])
        store.mark_polled(NOW)
        return store.stream


def garbage(path: Path) -> None:
    """Write a file that is no store."""
    path.write_bytes(b"this is no store\n" * 1000)


def directory(path: Path) -> None:
    """Make a directory in place of the file."""
    path.unlink()
    (path / "inner").mkdir(parents=True)


def changed(statement: str) -> Callable[[Path], None]:
    """Return a function that changes values in the tables."""

    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    return change


OLD_HEAD = changed("UPDATE meta SET value = '3' WHERE key = 'sequence'")


def bad_name(path: Path) -> None:
    """Make a store with another name in its own description of a table."""
    whole = path.read_bytes()
    assert whole.count(b"body BLOB NOT NULL") == 1
    path.write_bytes(whole.replace(b"body BLOB NOT NULL", b"bodx BLOB NOT NULL"))


def unreadable_name(path: Path) -> None:
    """Make the same with a name that is not valid text, which SQLite repeats in its error."""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"INDEX waiting", b"INDE\x90 waiting"))


def condemned_again(path: Path) -> None:
    """Make a store that was found damaged while it was in use, after a check found it sound."""
    (path.parent / CONDEMNED_NAME).write_text(CONDEMNED_AGAIN)


@pytest.mark.parametrize(
    "damage",
    [
        garbage,
        directory,
        bad_name,
        unreadable_name,
        condemned_again,
        # A store that does not know its sequence, or whose records are beyond it.
        changed("DELETE FROM meta WHERE key = 'sequence'"),
        OLD_HEAD,
        # Bytes that are no text; a sink that has had more than was ever committed.
        changed("INSERT INTO meta VALUES ('identity', CAST(x'fffe' AS TEXT))"),
        changed("UPDATE sinks SET cursor = 31"),
    ],
)
def test_a_damaged_store_is_kept_and_a_new_one_begins(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A damaged store is renamed, whatever the damage, and a new stream begins with one."""
    stream = used(tmp_path)
    damage(tmp_path / FILE_NAME)
    store, reset = open_store(tmp_path, NOW)
    with closing(store):
        assert reset is not None
        assert reset.reason
        assert reset.previous_stream in (stream, None)
        assert (tmp_path / str(reset.kept_as)).exists()
        assert store.stream != stream
        assert sequences(store.commit([draft(1)])) == [1]
        store.commit([bridge_draft(BRIDGE_STORE_RESET)])
    with closing(open_store(tmp_path, NOW)[0]) as again:
        assert store.stream == again.stream


def test_the_stream_of_a_damaged_store_is_reported(tmp_path: Path) -> None:
    """If the damaged store's stream can be read, the reset names it, so that consumers know which
    one has ended.
    """
    stream = used(tmp_path)
    OLD_HEAD(tmp_path / FILE_NAME)
    store, reset = open_store(tmp_path, NOW)
    store.close()
    assert reset is not None
    assert stream == reset.previous_stream


def test_a_reset_is_reported_until_its_record_is_committed(tmp_path: Path) -> None:
    """A kill between the reset and its record does not hide the reset; the record ends that."""
    used(tmp_path)
    garbage(tmp_path / FILE_NAME)
    first_store, first = open_store(tmp_path, NOW)
    first_store.close()
    second_store, second = open_store(tmp_path, NOW)
    second_store.commit([bridge_draft(BRIDGE_STORE_RESET)])
    second_store.close()
    third_store, third = open_store(tmp_path, NOW)
    third_store.close()
    assert first is not None
    assert (first, None) == (second, third)


@pytest.mark.parametrize(("left", "reason"), [(None, "missing"), (b"", "empty")])
def test_a_lost_store_is_a_reset(tmp_path: Path, left: bytes | None, reason: str) -> None:
    """In a directory that was used, a missing or empty file is a reset."""
    used(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    if left is not None:
        (tmp_path / FILE_NAME).write_bytes(left)
    store, reset = open_store(tmp_path, NOW)
    store.close()
    assert StoreReset(reason=f"the file is {reason}", previous_stream=None, kept_as=None) == reset


def test_a_log_without_its_file_is_kept(tmp_path: Path) -> None:
    """A log without its store is renamed: SQLite would delete it with the last commits."""
    log = tmp_path / f"{FILE_NAME}-wal"
    log.write_bytes(b"all that was committed last")
    store, reset = open_store(tmp_path, NOW)
    store.close()
    assert reset is not None
    assert (tmp_path / str(reset.kept_as)).read_bytes() == b"all that was committed last"


def test_a_new_directory_is_no_reset(tmp_path: Path) -> None:
    """The first start is no reset; the directory is private to its owner."""
    store, reset = open_store(tmp_path / "a" / "b", NOW)
    store.close()
    assert reset is None
    assert (tmp_path / "a" / "b" / FILE_NAME).exists()


def test_a_store_of_another_vm_is_put_aside(tmp_path: Path) -> None:
    """The store from a disk image is renamed."""
    stream = used(tmp_path)
    store, _ = open_store(tmp_path, NOW)
    store, reset = put_aside(store, NOW, reason="another VM's")
    with closing(store):
        assert ("another VM's", stream) == (reset.reason, reset.previous_stream)
        assert store.head == 0
    with closing(sqlite3.connect(tmp_path / str(reset.kept_as))) as kept:
        assert kept.execute("SELECT count(*) FROM records").fetchone() == (30,)


def test_a_store_in_use_is_refused_after_the_wait(tmp_path: Path) -> None:
    """A second bridge on the same store ends after a wait, to be started again, and the first one
    works on.
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(TryLaterError, match="in use by another bridge"):
        open_store(tmp_path, NOW, wait=0.1)
    holder.communicate(timeout=10)
    assert holder.returncode == 0
    open_store(tmp_path, NOW, wait=0.1)[0].close()


def test_another_version_of_the_schema_is_refused(tmp_path: Path) -> None:
    """The store of a newer version is neither used nor renamed."""
    used(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(ConfigurationError, match="another version"):
        open_store(tmp_path, NOW)
    assert list(tmp_path.glob("*.kept")) == []


def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The message names the variable and the path."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="SEB_STATE_DIR"):
        open_store(tmp_path / "file", NOW)
    with pytest.raises(ConfigurationError, match="SEB_STATE_DIR"):
        open_store(tmp_path / "file" / "below", NOW)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_FSYNC])
def test_a_disk_that_fails_may_be_well_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A failing disk ends the start with an exit code after which a service manager tries again."""

    def fail(*place: object, **how: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    with monkeypatch.context() as failing:
        failing.setattr(sqlite3, "connect", fail)
        for minutes in (0, 11):
            with pytest.raises(TryLaterError, match="SEB_STATE_DIR: the disk under"):
                open_store(tmp_path, NOW + timedelta(minutes=minutes))
    open_store(tmp_path, NOW)[0].close()


def test_a_store_that_its_disk_does_not_read_for_long_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not read a part of it for ten minutes will not read it any more. One that
    read it meanwhile begins anew.
    """
    used(tmp_path)
    damaged = [UnreadableError("page 5")]
    connect = opening._connect

    def reads(path: Path, wait: float, *, converts: bool) -> sqlite3.Connection:
        if damaged and path.exists() and path.stat().st_ino == store_file:
            raise damaged[0]
        return connect(path, wait, converts=converts)

    store_file = (tmp_path / FILE_NAME).stat().st_ino
    monkeypatch.setattr(opening, "_connect", reads)
    monkeypatch.setattr(opening, "_PAUSES", ())
    with pytest.raises(TryLaterError, match="page 5"):
        open_store(tmp_path, NOW)
    error = damaged.pop()
    open_store(tmp_path, NOW + timedelta(minutes=9))[0].close()
    damaged.append(error)
    for minutes in (11, 20):
        with pytest.raises(TryLaterError):
            open_store(tmp_path, NOW + timedelta(minutes=minutes))
    store, reset = open_store(tmp_path, NOW + timedelta(minutes=21))
    store.close()
    assert reset is not None
    assert reset.reason == "page 5"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EIO, TryLaterError),
        (errno.ENOSPC, TryLaterError),
        (errno.EMFILE, TryLaterError),
        (errno.EACCES, ConfigurationError),
        (errno.EROFS, ConfigurationError),
    ],
)
def test_what_may_pass_by_itself_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[SebError]
) -> None:
    """An error of the directory that may pass ends the start with the same exit code."""

    def fail(path: Path) -> None:
        raise OSError(number, "made up")

    monkeypatch.setattr("bridge.system.sync_directory", fail)
    for directory in (tmp_path, tmp_path / "new"):
        with pytest.raises(expected, match=r"SEB_STATE_DIR: .*\(made up\)"):
            open_store(directory, NOW)


def test_a_large_store_is_opened_without_reading_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store above the limit is not checked at the start, so that a backlog delays no start."""
    used(tmp_path)
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*place: object, **how: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*place, **how)  # type: ignore[call-overload]
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    open_store(tmp_path, NOW)[0].close()
    monkeypatch.setattr(opening, "_CHECK_BYTES", 0)
    open_store(tmp_path, NOW)[0].close()
    assert [each for each in statements if CHECK in each] == [f"{CHECK}(1)"]


def test_a_store_that_only_seemed_damaged_is_kept(tmp_path: Path) -> None:
    """SQLite takes some errors of a disk for damage: a store that is sound stays in use. If it
    seems damaged again within an hour, it is renamed.
    """
    used(tmp_path)
    checked_at = 0.0
    for hours, kept in ((0.0, True), (1.1, True), (0.9, False)):
        for _ in range(2):  # two threads find it
            condemn(tmp_path, checked_at + hours * 3600)
        store, reset = open_store(tmp_path, NOW)
        if kept:
            checked_at = (tmp_path / CONDEMNED_NAME).stat().st_mtime
        store.close()
        assert (reset is None) == kept
    assert not (tmp_path / CONDEMNED_NAME).exists()


def test_damage_found_in_use_is_handled_by_the_next_start(tmp_path: Path) -> None:
    """A store that was found damaged in use, and is, is renamed by the next start."""
    used(tmp_path, records=200)
    with opened(tmp_path) as store:
        store.read("PRAGMA cache_size=1")
        ((root,),) = store.read("SELECT rootpage FROM sqlite_master WHERE name = 'records'")
        with (tmp_path / FILE_NAME).open("r+b") as file:
            file.seek((root - 1) * 4096)
            file.write(b"\xff" * 4096)
        with pytest.raises(StoreError):
            store.read("SELECT count(body) FROM records")
        assert store.damaged
    store, reset = open_store(tmp_path, NOW)
    store.close()
    assert reset is not None
