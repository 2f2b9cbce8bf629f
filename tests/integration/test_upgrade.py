"""A store of an earlier version: it opens, its tables change, and its backlog is delivered."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.documents.documents import EVENT_ID, OTHER_ID, VM
from support.eventually import eventually
from support.process.launch import Launch
from support.sinks.http_server import HttpServer
from support.store_helpers import AN_APPROVAL, NOW, observer, opened, recipients

from bridge.approval.approval_values import receipt
from bridge.events.state import load_events
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from bridge.store.approvals import ApprovalStore
from bridge.store.opening import FILE_NAME, EarlierVersionError, open_existing, open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from bridge.store.schema import SCHEMA_VERSION, migrate

SUPPORT = Path(__file__).parent.parent / "support"
DUMP = SUPPORT / "store_0_1_0.sql"
TAG = "Zo\u00eb \U0001fae9"
VM_ID = "3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90"
STREAM = "63e6a7f8-a026-41b6-aa62-46cbc56af963"
EVENT = "602d9444-d2cd-49c7-8624-8643e7171297"


def old_store(directory: Path) -> Path:
    """The store as 0.1.0 left it."""
    directory.mkdir(mode=0o700)
    path = directory / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP.read_text(encoding="utf-8"))
    (directory / "newest").write_text(f"{STREAM} {3:020d}\n")
    (directory / "looked").touch()
    return path


def test_a_bridge_delivers_the_backlog_of_the_version_before(launch: Launch) -> None:
    """The sink that had nothing gets each record, with the bytes that 0.1.0 committed; the stream
    counts on, nothing is told of a reset, and the VM's tag is what it was.
    """
    with closing(sqlite3.connect(old_store(launch.state))) as connection:
        committed = connection.execute("SELECT body FROM records ORDER BY sequence").fetchall()
    vm = SimulatedVm(name="web_7", vm_id=VM_ID, tags={"owner": TAG})
    with HttpServer() as server, Simulator(vm=vm) as simulator:
        bridge = launch(
            SEB_IMDS__URL=simulator.url,
            SEB_IDENTITY__TAGS='["owner"]',
            SEB_SINK__WEBHOOK__URL=f"{server.origin}/x",
        )
        eventually(lambda: len(server.requests()) >= 4, what="the backlog and the start")
        assert bridge.stop() == 0
        got = [request.body for request in server.requests()]
    assert got[:3] == [body for (body,) in committed]
    after = [json.loads(each) for each in got[3:]]
    assert {each["stream"] for each in after} == {STREAM}
    assert [int(each["sequence"]) for each in after] == list(range(4, 4 + len(after)))
    assert "seb.bridge.store-reset.v1" not in [each["type"] for each in after]
    assert after[0]["data"]["vm"]["tags"] == {"owner": TAG}
    assert list(launch.state.glob("*.kept")) == []


def test_everything_is_still_known(tmp_path: Path) -> None:
    """Cursors, dead records, events, approvals and the identity are those of before."""
    old_store(tmp_path / "state")
    store, reset = open_store(tmp_path / "state", NOW)
    with closing(store):
        outbox = Outbox(store)
        identity, seen = store.identity(), store.last_seen()
        assert reset is None
        assert (store.stream, store.head, store.last_record_sequence) == (STREAM, 3, 3)
        assert identity is not None
        assert (identity.vm_id, dict(identity.tags)) == (VM_ID, {"owner": TAG})
        assert list(seen.events) == [EVENT]
        assert outbox.register(recipients("drain", "file", "webhook")) == {
            "drain": 2,
            "file": 3,
            "webhook": 0,
        }
        # Nobody knows how the cursor of `file` came to be past the event's record.
        assert not outbox.has_acknowledged("file", EVENT)
        assert [(each.sink, each.sequence) for each in outbox.dead.shown()] == [("drain", 2)]
        assert store.read("SELECT actor, state FROM approvals") == [("local:ops", "confirmed")]
        assert store.read("PRAGMA user_version") == [(SCHEMA_VERSION,)]
        assert store.read("PRAGMA integrity_check") == [("ok",)]


def test_receipts_that_waited_go_to_the_pull_channel(tmp_path: Path) -> None:
    """0.1.0 had two entries for it; the one with receipts keeps its place and its dead records."""
    path = old_store(tmp_path / "state")
    with closing(sqlite3.connect(path)) as connection, connection:
        (columns,) = (len(row) for row in connection.execute("SELECT * FROM sinks LIMIT 1"))
        rest = (1, *([0] * (columns - 3)))
        marks = ",".join("?" * columns)
        for row in (("pull", 3, *rest), ("pull-receipts", 1, *rest)):
            connection.execute(f"INSERT INTO sinks VALUES ({marks})", row)
        connection.execute("UPDATE dead SET sink = 'pull-receipts'")
    store, reset = open_store(path.parent, NOW)
    with closing(store):
        assert reset is None
        outbox = Outbox(store)
        assert outbox.register(recipients("pull")) == {"pull": 1}
        assert [(each.sink, each.sequence) for each in outbox.dead.shown()] == [("pull", 2)]
        assert "pull-receipts" not in outbox.known_sinks()


def test_the_tables_are_those_of_a_new_store(tmp_path: Path) -> None:
    """After the migration nothing tells the two apart."""
    described = []
    old_store(tmp_path / "old")
    for directory in (tmp_path / "old", tmp_path / "new"):
        store, _ = open_store(directory, NOW)
        with closing(store):
            described.append(
                {
                    name: store.read(f"PRAGMA table_xinfo({name})")
                    for (name,) in store.read("SELECT name FROM sqlite_master")
                }
            )
    assert described[0] == described[1]


def test_a_store_without_reasons_gets_them(tmp_path: Path) -> None:
    """Version 2 of the tables kept no reason of an approval; an approval that is under way there
    goes on, and new ones have theirs.
    """
    (tmp_path / "state").mkdir(mode=0o700)
    path = tmp_path / "state" / FILE_NAME
    with opened(tmp_path / "state") as store:
        approval = replace(AN_APPROVAL, person_reason="a", state="posted")
        ApprovalStore(store, NOW).save(approval, NOW, receipt(approval, observer(), NOW))
    with closing(sqlite3.connect(path)) as connection, connection:
        for column in ("why", "key", "expires", "act", "revision", "uptime"):
            connection.execute(f"ALTER TABLE approvals DROP COLUMN {column}")
        for table in ("preparations", "forgotten", "absences", "ends_owed", "catch_up"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("ALTER TABLE acknowledged RENAME COLUMN role TO kind")
        connection.execute("PRAGMA user_version=2")
    store, reset = open_store(path.parent, NOW)
    with closing(store):
        assert reset is None
        assert ApprovalStore(store, NOW).unfinished() == [replace(AN_APPROVAL, state="posted")]
        assert store.read("PRAGMA user_version") == [(SCHEMA_VERSION,)]


def test_a_store_without_keys_gets_them(tmp_path: Path) -> None:
    """0.2.0 kept neither the key of a command nor when it expires: what is under way there has
    neither, and everything else is as it was.
    """
    (tmp_path / "state").mkdir(mode=0o700)
    path = tmp_path / "state" / FILE_NAME
    with opened(tmp_path / "state") as store:
        approval = replace(AN_APPROVAL, person_reason="a", key="k", expires=7)
        ApprovalStore(store, NOW).save(approval, NOW, receipt(approval, observer(), NOW))
    with closing(sqlite3.connect(path)) as connection, connection:
        for column in ("key", "expires", "act", "revision", "uptime"):
            connection.execute(f"ALTER TABLE approvals DROP COLUMN {column}")
        for table in ("preparations", "forgotten", "absences", "ends_owed", "catch_up"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("ALTER TABLE acknowledged RENAME COLUMN role TO kind")
        connection.execute("PRAGMA user_version=3")
    store, reset = open_store(path.parent, NOW)
    with closing(store):
        assert reset is None
        assert ApprovalStore(store, NOW).unfinished() == [replace(AN_APPROVAL, person_reason="a")]
        assert store.read("PRAGMA user_version") == [(SCHEMA_VERSION,)]


def test_a_migration_that_is_cut_short_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it or none: the next start does it."""
    path = old_store(tmp_path / "state")

    def fail(connection: sqlite3.Connection) -> None:
        migrate(connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bridge.store.opening.migrate", fail)
        with pytest.raises(KeyboardInterrupt):
            open_store(path.parent, NOW)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(proof) FROM meta").fetchone() == (7,)
    store, reset = open_store(path.parent, NOW)
    store.close()
    assert reset is None


def test_a_reset_that_0_1_0_had_still_to_tell(tmp_path: Path) -> None:
    """It is told, though it was written down in that version's form."""
    path = old_store(tmp_path / "state")
    kept = {"reason": "cut", "previous_stream": "s", "kept_as": "k.kept", "ours": True}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('reset', ?, 1)", (json.dumps(kept),))
    store, reset = open_store(path.parent, NOW)
    store.close()
    assert reset is not None
    assert (reset.reason, reset.previous_stream, reset.kept_as) == ("cut", "s", "k.kept")


def test_a_store_of_0_2_0_opens_with_everything_in_it(tmp_path: Path) -> None:
    """Events, cursors, acknowledgements, dead records and approvals; its tables are today's."""
    path = tmp_path / "state" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SUPPORT / "store_0_2_0.sql").read_text(encoding="utf-8"))
    store, reset = open_store(path.parent, NOW)
    with closing(store):
        assert (reset, store.head, store.identity()) == (None, 4, VM)
        known = load_events(store.last_seen().events)
        assert {key: (each.pending, each.revision) for key, each in known.items()} == {
            OTHER_ID.casefold(): (False, 2),
            EVENT_ID.casefold(): (True, 1),
        }
        outbox = Outbox(store)
        outbox.register({name: Recipient(kind="test") for name in ("drain", "ops")})
        assert outbox.has_acknowledged("drain", EVENT_ID.casefold())
        assert [(each.sink, each.sequence) for each in outbox.dead.shown()] == [("ops", 1)]
        assert [each.person_reason for each in ApprovalStore(store, NOW).unfinished()] == ["CHG-1"]
        assert store.last_revisions([EVENT_ID.casefold()]) == {}


def test_a_sink_that_gets_another_kind_at_the_upgrade_from_0_2_0_gets_what_is_pending(
    tmp_path: Path,
) -> None:
    """0.2.0 kept the kind of a sink only with its acknowledgements: the destination of another kind
    still gets the pending event that the former one had.
    """
    path = tmp_path / "state" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SUPPORT / "store_0_2_0.sql").read_text(encoding="utf-8"))
    store, _ = open_store(path.parent, NOW)
    with closing(store):
        outbox = Outbox(store)
        outbox.register({name: Recipient(kind="file") for name in ("drain", "ops")})
        batch = outbox.next("drain", 10)
        assert batch is not None
        assert EVENT_ID in {record.event_id for record in batch.records}


@pytest.mark.parametrize("had", ["acknowledged", "waiting"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_sink_that_0_2_0_ran_without_gets_the_ends_that_it_missed(
    tmp_path: Path, had: str, *, is_late: bool
) -> None:
    """A sink that was out of the settings of 0.2.0 is back, at the upgrade or in a later run: it
    gets the end of an event that it had, or that waited for it, and what is pending.
    """
    path = tmp_path / "state" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript((SUPPORT / "store_0_2_0.sql").read_text(encoding="utf-8"))
        connection.execute("UPDATE sinks SET active = 0, cursor = 1 WHERE name = 'drain'")
        if had == "acknowledged":
            connection.execute("UPDATE acknowledged SET sequence = 1 WHERE sequence = 2")
        else:
            connection.execute("DELETE FROM acknowledged")
    store, _ = open_store(path.parent, NOW)
    with closing(store):
        outbox = Outbox(store)
        if is_late:
            outbox.register({"ops": Recipient(kind="test")})
        outbox.register({name: Recipient(kind="test") for name in ("drain", "ops")})
        batch = outbox.next("drain", 10)
        assert batch is not None
        assert [each.sequence for each in batch.records][:2] == [2, 3]


def test_a_retry_that_0_2_0_had_not_finished_ends_with_the_end(tmp_path: Path) -> None:
    """A person has had the beginning of an event tried again: after it comes the event's end, which
    the sink had before the upgrade.
    """
    path = tmp_path / "state" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript((SUPPORT / "store_0_2_0.sql").read_text(encoding="utf-8"))
        connection.execute("UPDATE dead SET sink = 'drain', again = 1 WHERE sequence = 1")
    store, _ = open_store(path.parent, NOW)
    with closing(store):
        outbox = Outbox(store)
        outbox.register({name: Recipient(kind="test") for name in ("drain", "ops")})
        for sequence in (1, 2):
            batch = outbox.next("drain", 1)
            assert batch is not None
            assert [each.sequence for each in batch.records] == [sequence]
            outbox.move_past("drain", batch)


def test_commands_of_a_new_version_do_not_convert_the_store(tmp_path: Path) -> None:
    """Before a new version is started, `seb check` and `seb outbox` of it may run beside the old
    one, which could not use a store that they had converted.
    """
    path = tmp_path / "state" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SUPPORT / "store_0_2_0.sql").read_text(encoding="utf-8"))
    with pytest.raises(EarlierVersionError, match="start the bridge, which converts it"):
        open_existing(path.parent)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
