"""The writer and what it leaves in the database: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, select, text
from support.console.intake import Intake
from support.console.records import FakeVm
from support.eventually import eventually

from console.db.connection.opening import REVISIONS, Database
from console.db.connection.transactions import newest_number, write_to
from console.db.decisions import decision_rows
from console.db.events.changed_events import changed_event_ids
from console.db.schema import tables
from console.db.snapshot import Snapshot, Snapshots
from console.db.sources.checkpoints import (
    Checkpoint,
    PartitionClaim,
    read_checkpoints,
    read_claims,
    write_claims,
)
from console.db.vms.vm_lists import WantedVms
from console.db.vms.vm_updates import write_polls
from console.fleet.fold import MAX_STREAMS
from console.fleet.values.decision import Decision, VmCommand
from console.fleet.values.keys import EventKey
from console.ingest.delivery import Delivery, QuarantinedMessage
from console.ingest.writer import Writer
from console.records.incoming import IncomingMessage
from console.records.parse import ForeignError, parse_record, parse_state, parse_status
from sinks.shared.errors import ConfigurationError
from wire.record import Record

AT = 1_800_000_000.0


class Taking:
    """A writer, and the answers that it gave."""

    def __init__(self, database: Database) -> None:
        self.writer = Writer(database, opened=lambda: None, committed=lambda: None)
        self.writer.start()

    def take(
        self, *items: IncomingMessage | QuarantinedMessage, checkpoint: Checkpoint | None = None
    ) -> None:
        """Pass on a delivery, and wait for its commit."""
        stored = threading.Event()
        answers: list[bool] = []

        def done(answer: bool) -> None:
            answers.append(answer)
            stored.set()

        delivery = Delivery(source="s", items=items, done=done, checkpoint=checkpoint)
        self.writer.put(delivery, timeout=10)
        assert stored.wait(30)
        assert answers == [True]


@pytest.fixture
def taking(database: Database) -> Iterator[Taking]:
    """A running writer, which ends before its database."""
    made = Taking(database)
    yield made
    made.writer.stop()


def taken(record: Record, at: float = AT) -> IncomingMessage:
    """Return a record as it comes in."""
    return parse_record(record.body, source="s", received_at=at)


def test_a_vm_has_a_bounded_number_of_streams(taking: Taking, database: Database) -> None:
    """A VM that begins a stream with each record keeps only its newest streams; another VM keeps
    its own.
    """
    vm, other = FakeVm(name="a"), FakeVm(name="b")
    taking.take(taken(other.started()))
    for number in range(0, 3 * MAX_STREAMS, 5):
        some = []
        for each in range(number, number + 5):
            vm.stream = f"stream-{each}"
            vm.sequence += 2  # so that there is a gap to be forgotten with it
            some += [taken(vm.started(now=moment(each))), taken(vm.started(now=moment(each)))]
            vm.sequence += 2
            some.append(taken(vm.started(now=moment(each))))
        taking.take(*some)
    with database.reading.begin() as connection:
        streams = set(connection.execute(select(tables.stream.c.stream)).scalars())
        gaps = set(connection.execute(select(tables.gap.c.stream)).scalars())
    newest = {f"stream-{each}" for each in range(2 * MAX_STREAMS, 3 * MAX_STREAMS)}
    assert streams == newest | {other.stream}
    assert gaps == newest


def moment(second: int) -> datetime:
    """Return a time by the clock of a VM."""
    return datetime.fromtimestamp(AT - 1000 + second, UTC)


def counted(database: Database, table: str) -> int:
    """Return how many rows a table has."""
    with database.reading.begin() as connection:
        number: int = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
        return number


def test_a_heartbeat_is_never_a_row_of_its_own(database: Database, taking: Taking) -> None:
    """A thousand heartbeats leave one row per VM, and no record."""
    vms = [FakeVm(name=f"web-{n}") for n in range(10)]
    taking.take(*(taken(vm.heartbeat()) for _ in range(100) for vm in vms))
    assert counted(database, "record") == 0
    assert counted(database, "vm") == counted(database, "stream") == 10


def test_a_record_is_stored_once_with_its_bytes(database: Database, taking: Taking) -> None:
    """Copies of a record in one batch or the next change nothing, and the stored bytes are those
    that the bridge signed.
    """
    record = FakeVm().event("E", description="quote ' \" and \u202e and 漢字")
    taking.take(taken(record), taken(record))
    taking.take(taken(record))
    assert counted(database, "record") == 1
    with database.reading.begin() as connection:
        body = connection.execute(select(tables.record.c.body)).scalar_one()
    assert bytes(body) == record.body


def look(database: Database) -> AbstractContextManager[Snapshot]:
    """Return what the rows say, at the time of the tests."""
    return Snapshots(database, clock=lambda: AT).open()


def test_everything_comes_back_from_the_rows(database: Database, taking: Taking) -> None:
    """Every value that was stored is read unchanged."""
    vm = FakeVm(scale_set="set")
    first = vm.event("E1", resources=["web-1", "other"])
    vm.event("LOST")
    last = vm.event("E2", transition="started")
    told = {
        "actor": "a" * 512,
        "jti": "j" * 512,
        "rsn": "r" * 512,
    }  # as long as a token may have it
    taking.take(taken(first), taken(last), taken(vm.receipt("E2", "posted", **told)))
    with look(database) as snapshot:
        heard = snapshot.vms.find_vm(vm.vm_id)
        known = {each.event.event_id: each for each in snapshot.event_lists.open_events()}
    assert heard is not None
    assert heard.vm.missing_records == 1
    assert heard.vm.scope == "sub-1/group-1"
    assert {event_id: each.event.state for event_id, each in known.items()} == {
        "E1": "scheduled",
        "E2": "started",
    }
    assert known["E1"].shown.report.event.resources == ("web-1", "other")
    assert known["E1"].event.scope == "sub-1/group-1"
    (receipt,) = (each.facts for each in known["E2"].receipts)
    assert (receipt.state, receipt.person_reason) == ("posted", told["rsn"])
    assert (receipt.actor, receipt.jti) == (told["actor"], told["jti"])


def test_what_changed_since_a_number_is_found(database: Database, taking: Taking) -> None:
    """A reader of the rows after a number finds what later transactions changed, and
    nothing else.
    """
    one, two = FakeVm(name="one"), FakeVm(name="two")
    taking.take(taken(one.event("E", resources=["one"])), taken(two.event("E", resources=["one"])))
    with look(database) as snapshot:
        before = newest_number(snapshot.connection)
    taking.take(taken(one.heartbeat(), at=AT + 1), taken(two.heartbeat(), at=AT + 1))
    with look(database) as snapshot:
        assert changed_event_ids(snapshot.connection, before) == []
    taking.take(taken(one.event("E", transition="ended", resources=["one"]), at=AT + 9))
    with look(database) as snapshot:
        assert changed_event_ids(snapshot.connection, before) == ["E"]
        assert [each.event.state for each in snapshot.events.events_with_ids(["E"])] == ["ended"]


def test_a_heartbeat_is_no_change_of_its_vm(database: Database, taking: Taking) -> None:
    """A heartbeat changes its VM only if it ends a silence, because ten thousand VMs send 170
    heartbeats a second.
    """
    vm = FakeVm()
    taking.take(taken(vm.heartbeat()))
    taking.take(taken(vm.heartbeat(), at=AT + 1))
    with look(database) as snapshot:
        number = newest_number(snapshot.connection)
    taking.take(taken(vm.heartbeat(), at=AT + 61))
    with look(database) as snapshot:
        assert snapshot.vms.changed_vms(number) == []
    taking.take(taken(vm.heartbeat(), at=AT + 999))
    with look(database) as snapshot:
        assert [each.vm.heard_at for each in snapshot.vms.changed_vms(number)] == [AT + 999]


def test_a_field_that_is_newer_than_a_row_is_none(database: Database, taking: Taking) -> None:
    """In a report that was stored before the event had a field, that field is None."""
    taking.take(taken(FakeVm().event("E")))
    with database.writing.begin() as connection:
        (facts,) = connection.execute(select(tables.report.c.facts)).one()
        older = json.loads(facts)
        del older["event"]["description"]
        connection.execute(tables.report.update().values(facts=json.dumps(older)))
    with look(database) as snapshot:
        event = snapshot.events.find_event("E").shown.report.event
    assert (event.event_id, event.description) == ("E", None)


def test_a_name_that_an_event_dropped_is_somebody_elses(database: Database, taking: Taking) -> None:
    """If an event drops a name and ends, and then a VM with that name appears and another one takes
    the name, their whole batch is stored and shown.
    """
    one = FakeVm(name="one")
    taking.take(taken(one.event("E", resources=["one", "two"])))
    taking.take(taken(one.event("E", transition="updated", resources=["one"]), at=AT + 1))
    taking.take(taken(one.event("E", transition="ended", resources=["one"]), at=AT + 2))
    two, third = FakeVm(name="two"), FakeVm(name="three")
    others = [FakeVm(name=f"other-{n}") for n in range(20)]
    taking.take(taken(two.heartbeat(), at=AT + 3), *(taken(each.event("F")) for each in others))
    third.name = "one"
    taking.take(taken(third.heartbeat(), at=AT + 4), *(taken(each.event("G")) for each in others))
    with look(database) as snapshot:
        assert {each.event.event_id for each in snapshot.event_lists.open_events()} == {"F", "G"}
        assert snapshot.events.find_event("G").seen_by == 20
        assert snapshot.vm_lists.count_vms() == 23
        assert [
            each.vm.name for each in snapshot.vm_lists.page_of_vms(WantedVms(q="one"), limit=9)
        ] == [
            "one",
            "one",
        ]


def test_an_event_of_the_retained_state_alone_is_ended_by_it(
    database: Database, taking: Taking
) -> None:
    """An event of which only a state document came in ends with a later state document that does
    not list it.
    """
    vm = FakeVm()
    record = vm.event("E")

    def state(*records: Record, after: float) -> IncomingMessage:
        at = datetime.fromtimestamp(AT + after, UTC)
        return parse_state(
            vm.state(*records, now=at),
            source="s",
            received_at=AT + after,
            vm_id=vm.vm_id,
            site="default",
        )

    taking.take(state(record, after=1))
    with look(database) as snapshot:
        assert [each.event.state for each in snapshot.event_lists.open_events()] == ["scheduled"]
    taking.take(state(after=2))
    with look(database) as snapshot:
        assert snapshot.event_lists.open_events() == []
        assert snapshot.events.find_event("E").shown.report.event.event_status == "Unknown"
    taking.take(state(record, after=3))
    with look(database) as snapshot:
        assert [each.event.state for each in snapshot.event_lists.open_events()] == ["scheduled"]


def test_when_a_vm_polled_is_written_once_it_is_known(database: Database, taking: Taking) -> None:
    """The poll of a VM without a record is kept until the VM has a row."""
    vm = FakeVm()
    with write_to(database) as (connection, number):
        assert write_polls(connection, {vm.vm_id: AT}, number) == set()
    taking.take(taken(vm.heartbeat()))
    with write_to(database) as (connection, number):
        assert write_polls(connection, {vm.vm_id: AT}, number) == {vm.vm_id}
    with look(database) as snapshot:
        assert [each.vm.pulled_at for each in snapshot.vms.changed_vms(number - 1)] == [AT]
    with write_to(database) as (connection, number):
        write_polls(connection, {vm.vm_id: AT + 20}, number)
    with look(database) as snapshot:
        assert snapshot.vms.changed_vms(number - 1) == []
        assert snapshot.vms.find_vm(vm.vm_id).vm.pulled_at == AT + 20


@pytest.mark.parametrize("nul", ["\\u0000", "\\u0000\\u0000x"])
def test_no_sign_in_a_text_breaks_the_database(
    database: Database, taking: Taking, nul: str
) -> None:
    """A NUL, which PostgreSQL cannot store, becomes U+FFFD."""
    record = FakeVm().event("E", description="NUL")
    body = record.body.replace(b"NUL", nul.encode())
    taking.take(parse_record(body, source="s", received_at=AT))
    assert counted(database, "event") == 1


def test_one_record_that_cannot_be_stored_does_not_stop_the_others(
    database: Database, taking: Taking
) -> None:
    """A record that cannot be stored is quarantined alone, with the database's reason; the rest of
    its batch is committed.
    """
    vm = FakeVm()
    good, bad, last = taken(vm.event("E1")), taken(vm.event("E2")), taken(vm.event("E3"))
    object.__setattr__(bad, "sequence", 2**70)
    taking.take(good, bad, last)
    assert counted(database, "record") == 2
    with database.reading.begin() as connection:
        reason = connection.execute(select(tables.quarantine.c.reason)).scalar_one()
    assert reason == "unstorable"


def test_what_is_too_long_for_an_index_does_not_stop_the_others(
    database: Database, taking: Taking
) -> None:
    """Names that are as long as a message allows are stored or quarantined, and never tried again
    and again.
    """
    draw = Random(7)

    def name(length: int) -> str:
        return "".join(chr(draw.randrange(0x20000, 0x2A6D0)) for _ in range(length))

    def status(length: int) -> IncomingMessage:
        vm = {"vmId": "vm-long", "name": name(length)}
        document = {"status": "online", "time": "2027-01-15T08:00:00.000Z", "version": "1"}
        body = json.dumps({**document, "session": name(290), "commands": True, "vm": vm}).encode()
        return parse_status(body, source="s", received_at=AT, vm_id="vm-long", site=name(100))

    with pytest.raises(ForeignError):
        status(12_000)
    long = FakeVm(name=name(300), subscription=name(290), group=name(290))
    event = long.event(name(300), resources=[name(300), long.name])
    taking.take(status(300), taken(event), taken(FakeVm().event("E")))
    with Snapshots(database, clock=lambda: AT).open() as snapshot:
        assert snapshot.events.find_event("E") is not None


def test_quarantine_has_one_row_per_reason(database: Database, taking: Taking) -> None:
    """Many invalid messages make one row for each reason, with a count."""
    bad = [QuarantinedMessage(reason="not_json", message="m", sample=b"\xff" * 9000, at=AT)] * 50
    taking.take(*bad)
    taking.take(*bad, QuarantinedMessage(reason="too_large", message="m", sample=b"", at=AT))
    with database.reading.begin() as connection:
        found = connection.execute(
            select(tables.quarantine.c.reason, tables.quarantine.c.count)
        ).all()
    assert dict(map(tuple, found)) == {"not_json": 100, "too_large": 1}


def test_a_checkpoint_is_committed_with_its_records(database: Database, taking: Taking) -> None:
    """A checkpoint is committed together with its records, and never goes back when a console is
    late that has lost the partition.
    """
    place = {"hub": "ns/hub", "consumer_group": "g", "partition": "0"}
    for number in (5, 9, 7):
        checkpoint = Checkpoint(**place, offset=str(number), sequence_number=number)
        taking.take(taken(FakeVm().event(f"E{number}")), checkpoint=checkpoint)
    rows = read_checkpoints(database.reading, "ns/hub", "g")
    assert [(row.partition, row.offset) for row in rows] == [("0", "9")]


def test_a_partition_is_claimed_by_one(database: Database) -> None:
    """Of two consoles that claim a partition at once, one gets it; only its etag allows a change of
    the claim.
    """
    if database.is_sqlite:
        pytest.skip("a SQLite file has one console, which keeps its claims in memory")
    claim = PartitionClaim(hub="ns/hub", consumer_group="g", partition="0", owner_id="one")
    got = write_claims(database.writing, [claim])
    assert [each.owner_id for each in got] == ["one"]
    assert write_claims(database.writing, [claim]) == []
    other = PartitionClaim(
        hub="ns/hub", consumer_group="g", partition="0", owner_id="two", etag="wrong"
    )
    assert write_claims(database.writing, [other]) == []
    (kept,) = read_claims(database.reading, "ns/hub", "g")
    assert (kept.owner_id, kept.etag) == ("one", got[0].etag)


@pytest.mark.parametrize("apart", [-3600.0, 3600.0])
def test_a_claim_is_as_old_to_a_machine_whose_clock_is_wrong(
    database: Database, apart: float
) -> None:
    """A console whose clock is an hour off neither takes a claimed partition nor waits longer for a
    free one.
    """
    if database.is_sqlite:
        pytest.skip("a SQLite file has one console, which keeps its claims in memory")
    claim = PartitionClaim(hub="ns/hub", consumer_group="g", partition="0", owner_id="one")
    write_claims(database.writing, [claim], own=lambda: time.time() + apart)
    (seen,) = read_claims(database.reading, "ns/hub", "g")
    assert abs(time.time() - seen.modified_at) < 30
    (mine,) = read_claims(database.reading, "ns/hub", "g", own=lambda: time.time() + apart)
    assert abs(time.time() + apart - mine.modified_at) < 30


def test_a_newer_schema_is_refused(database: Database) -> None:
    """A console does not open a database that a newer version has migrated."""
    with database.writing.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigurationError, match=r"9999 is newer .* upgrade the console"):
        database.open()


# Of SQLite, no index over an expression is read and compared.
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_the_migrations_make_the_tables(database: Database) -> None:
    """The schema after all migrations is that of `tables`."""
    with database.reading.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
        assert context.get_current_revision() == REVISIONS[-1]


def test_old_records_go(database: Database, taking: Taking) -> None:
    """The retention deletes records and ended events that are old enough, and keeps what
    is open.
    """
    vm, quiet = FakeVm(), FakeVm(name="quiet")
    over = [vm.event("OVER"), vm.event("OVER", transition="ended")]
    taking.take(
        *(taken(each) for each in [*over, quiet.event("OPEN"), vm.receipt("OVER", "confirmed")])
    )
    taking.take(taken(vm.event("NEW"), at=AT + 100))
    taking.writer.delete_before(AT + 1)
    eventually(lambda: counted(database, "record") == 1, what="the deletion")
    with database.reading.begin() as connection:
        ids = set(connection.execute(select(tables.event.c.event_id)).scalars())
        kept = set(connection.execute(select(tables.record.c.event_id)).scalars())
        left = connection.execute(select(func.count()).select_from(tables.report)).scalar_one()
    assert ids == {"OPEN", "NEW"}
    assert kept == {"NEW"}
    assert left == 2
    with look(database) as snapshot:
        assert snapshot.events.find_event("OVER") is None


@pytest.mark.parametrize("seed", range(3))
def test_batches_at_random_leave_what_one_batch_leaves(database: Database, seed: int) -> None:
    """The rows are the same however the records of a fleet are divided into batches and
    repeated.
    """
    random = Random(seed)
    vms = [FakeVm(name=f"web-{n}", scale_set="set") for n in range(5)]
    names = [vm.name for vm in vms]
    records = [
        each
        for n in range(8)
        for vm in vms
        for each in (vm.event(f"E{n}", resources=names), vm.heartbeat())
    ]
    items: Sequence[IncomingMessage] = [taken(record) for record in records]
    taking = Taking(database)
    rest = list(items) + random.sample(list(items), 20)
    random.shuffle(rest)
    while rest:
        size = random.randint(1, 30)
        taking.take(*rest[:size])
        rest = rest[size:]
    taking.writer.stop()
    assert counted(database, "record") == 40
    assert counted(database, "report") == 40
    with look(database) as snapshot:
        rows = snapshot.vm_lists.page_of_vms(WantedVms(), limit=100)
    assert {each.vm.name: each.vm.sequence for each in rows} == dict.fromkeys(names, 16)
    assert sum(each.vm.missing_records for each in rows) == 0


def test_a_state_of_a_vm_ends_what_it_does_not_list(database: Database, taking: Taking) -> None:
    """A state document ends the VM's open events that it does not list, whatever else its batch is
    about.
    """
    vm = FakeVm()
    taking.take(taken(vm.event("E1")))
    body = vm.state()
    state = parse_state(body, source="s", received_at=AT, vm_id=vm.vm_id, site="default")
    taking.take(state)
    with look(database) as snapshot:
        assert snapshot.event_lists.open_events() == []


def test_a_decision_goes_on_though_the_clock_was_set_back(database: Database) -> None:
    """If the clock is set back during an approval, its times keep their distance from the present,
    and a later decision is the newer one.
    """
    intake = Intake(database)
    at = intake.now.timestamp()
    said = {"event_id": "E", "fingerprint": "f", "reason": "r", "scope": "s"}
    first = Decision(
        id="1",
        kind="leave",
        state="over",
        actor="ada",
        at=at - 20,
        outcome="overtaken",
        over_at=at - 10,
        **said,
    )
    second = Decision(id="2", kind="approve", state="open", actor="ada", at=at - 10, **said)
    of_two = Decision(
        id="4",
        kind="approve",
        state="open",
        actor="ada",
        second_actor="bob",
        at=at - 7200,
        claimed_by="one",
        claimed_until=at + 5,
        **{**said, "event_id": "F"},
    )
    asked = VmCommand(
        jti="j",
        decision_id="2",
        vm_id="vm-1",
        channel="pull",
        subject="ada",
        made_at=at - 10,
        sent_at=at - 8,
        expires_at=at + 30,
        **said,
    )
    with write_to(database) as (connection, number):
        for each in (first, second, of_two):
            decision_rows.insert_decision(connection, each, number)
        decision_rows.insert_command(connection, asked, number)
    intake.now -= timedelta(hours=1)
    intake.let_pass(0)
    intake.let_pass(10)
    third = Decision(id="3", kind="leave", state="over", actor="bob", at=at - 3590, **said)
    with write_to(database) as (connection, number):
        decision_rows.insert_decision(connection, third, number)
        found = decision_rows.decisions_on(connection, EventKey("E", "s"))
        (command,) = decision_rows.read_commands(connection, "2")
        claimed = decision_rows.read_open(connection, EventKey("F", "s"))
    assert claimed is not None
    assert (claimed.at, claimed.claimed_until) == (at - 7200, None)
    assert [each.id for each in found] == ["1", "2", "3"]
    assert command.sent_at == at - 3600
    assert command.expires_at - command.made_at == 40
