"""What a batch of messages leaves in the rows: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from sqlalchemy import select
from support.console.intake import NOW, Intake
from support.console.records import FakeVm
from support.console.writer_bench import AT, WriterBench, count_rows, open_snapshot, received

from console.db.connection.opening import Database
from console.db.schema import tables
from console.db.snapshot import Snapshots
from console.db.vms.vm_lists import WantedVms
from console.fleet.fold import MAX_STREAMS
from console.records.incoming import IncomingMessage
from console.records.parse import ForeignError, parse_record, parse_state, parse_status
from wire.moment import rfc3339
from wire.record import Record


def moment(second: int) -> datetime:
    """Return a time by the clock of a VM."""
    return datetime.fromtimestamp(AT - 1000 + second, UTC)


def test_a_vm_has_a_bounded_number_of_streams(
    writer_bench: WriterBench, database: Database
) -> None:
    """A VM that begins a stream with each record keeps only its newest streams; another VM keeps
    its own.
    """
    vm, other = FakeVm(name="a"), FakeVm(name="b")
    writer_bench.take(received(other.started()))
    for number in range(0, 3 * MAX_STREAMS, 5):
        some = []
        for each in range(number, number + 5):
            vm.stream = f"stream-{each}"
            vm.sequence += 2  # so that there is a gap to be forgotten with it
            some += [received(vm.started(now=moment(each))), received(vm.started(now=moment(each)))]
            vm.sequence += 2
            some.append(received(vm.started(now=moment(each))))
        writer_bench.take(*some)
    with database.reading.begin() as connection:
        streams = set(connection.execute(select(tables.stream.c.stream)).scalars())
        gaps = set(connection.execute(select(tables.gap.c.stream)).scalars())
    newest = {f"stream-{each}" for each in range(2 * MAX_STREAMS, 3 * MAX_STREAMS)}
    assert streams == newest | {other.stream}
    assert gaps == newest


def test_a_heartbeat_is_never_a_row_of_its_own(
    database: Database, writer_bench: WriterBench
) -> None:
    """A thousand heartbeats leave one row per VM, and no record."""
    vms = [FakeVm(name=f"web-{n}") for n in range(10)]
    writer_bench.take(*(received(vm.heartbeat()) for _ in range(100) for vm in vms))
    assert count_rows(database, "record") == 0
    assert count_rows(database, "vm") == count_rows(database, "stream") == 10


def test_a_record_is_stored_once_with_its_bytes(
    database: Database, writer_bench: WriterBench
) -> None:
    """Copies of a record in one batch or the next change nothing, and the stored bytes are those
    that the bridge signed.
    """
    record = FakeVm().event("E", description="quote ' \" and \u202e and 漢字")
    writer_bench.take(received(record), received(record))
    writer_bench.take(received(record))
    assert count_rows(database, "record") == 1
    with database.reading.begin() as connection:
        body = connection.execute(select(tables.record.c.body)).scalar_one()
    assert bytes(body) == record.body


def test_a_name_that_an_event_dropped_is_somebody_elses(
    database: Database, writer_bench: WriterBench
) -> None:
    """If an event drops a name and ends, and then a VM with that name appears and another one takes
    the name, their whole batch is stored and shown.
    """
    one = FakeVm(name="one")
    writer_bench.take(received(one.event("E", resources=["one", "two"])))
    writer_bench.take(received(one.event("E", transition="updated", resources=["one"]), at=AT + 1))
    writer_bench.take(received(one.event("E", transition="ended", resources=["one"]), at=AT + 2))
    two, third = FakeVm(name="two"), FakeVm(name="three")
    others = [FakeVm(name=f"other-{n}") for n in range(20)]
    writer_bench.take(
        received(two.heartbeat(), at=AT + 3), *(received(each.event("F")) for each in others)
    )
    third.name = "one"
    writer_bench.take(
        received(third.heartbeat(), at=AT + 4), *(received(each.event("G")) for each in others)
    )
    with open_snapshot(database) as snapshot:
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
    database: Database, writer_bench: WriterBench
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

    writer_bench.take(state(record, after=1))
    with open_snapshot(database) as snapshot:
        assert [each.event.state for each in snapshot.event_lists.open_events()] == ["scheduled"]
    writer_bench.take(state(after=2))
    with open_snapshot(database) as snapshot:
        assert snapshot.event_lists.open_events() == []
        assert snapshot.events.find_event("E").shown.report.event.event_status == "Unknown"
    writer_bench.take(state(record, after=3))
    with open_snapshot(database) as snapshot:
        assert [each.event.state for each in snapshot.event_lists.open_events()] == ["scheduled"]


@pytest.mark.parametrize("nul", ["\\u0000", "\\u0000\\u0000x"])
def test_no_sign_in_a_text_breaks_the_database(
    database: Database, writer_bench: WriterBench, nul: str
) -> None:
    """A NUL, which PostgreSQL cannot store, becomes U+FFFD."""
    record = FakeVm().event("E", description="NUL")
    body = record.body.replace(b"NUL", nul.encode())
    writer_bench.take(parse_record(body, source="s", received_at=AT))
    assert count_rows(database, "event") == 1


def test_one_record_that_cannot_be_stored_does_not_stop_the_others(
    database: Database, writer_bench: WriterBench
) -> None:
    """A record that cannot be stored is quarantined alone, with the database's reason; the rest of
    its batch is committed.
    """
    vm = FakeVm()
    good, bad, last = received(vm.event("E1")), received(vm.event("E2")), received(vm.event("E3"))
    object.__setattr__(bad, "sequence", 2**70)
    writer_bench.take(good, bad, last)
    assert count_rows(database, "record") == 2
    with database.reading.begin() as connection:
        reason = connection.execute(select(tables.quarantine.c.reason)).scalar_one()
    assert reason == "unstorable"


def test_what_is_too_long_for_an_index_does_not_stop_the_others(
    database: Database, writer_bench: WriterBench
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
    writer_bench.take(status(300), received(event), received(FakeVm().event("E")))
    with Snapshots(database, clock=lambda: AT).open() as snapshot:
        assert snapshot.events.find_event("E") is not None


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
    items: Sequence[IncomingMessage] = [received(record) for record in records]
    writer_bench = WriterBench(database)
    rest = list(items) + random.sample(list(items), 20)
    random.shuffle(rest)
    while rest:
        size = random.randint(1, 30)
        writer_bench.take(*rest[:size])
        rest = rest[size:]
    writer_bench.writer.stop()
    assert count_rows(database, "record") == 40
    assert count_rows(database, "report") == 40
    with open_snapshot(database) as snapshot:
        rows = snapshot.vm_lists.page_of_vms(WantedVms(), limit=100)
    assert {each.vm.name: each.vm.sequence for each in rows} == dict.fromkeys(names, 16)
    assert sum(each.vm.missing_records for each in rows) == 0


def test_a_state_of_a_vm_ends_what_it_does_not_list(
    database: Database, writer_bench: WriterBench
) -> None:
    """A state document ends the VM's open events that it does not list, whatever else its batch is
    about.
    """
    vm = FakeVm()
    writer_bench.take(received(vm.event("E1")))
    body = vm.state()
    state = parse_state(body, source="s", received_at=AT, vm_id=vm.vm_id, site="default")
    writer_bench.take(state)
    with open_snapshot(database) as snapshot:
        assert snapshot.event_lists.open_events() == []


def test_a_vm_with_a_new_store_counts_though_its_clock_is_behind(intake: Intake) -> None:
    """After a redeployment a VM's records count as its newest ones, although its clock is
    behind.
    """
    redeploy = {"event_type": "Redeploy", "impact": "redeploy"}
    before, behind = FakeVm(name="a"), timedelta(hours=1)
    for transition in ("scheduled", "started"):
        intake.take(before.event("E", transition=transition, now=NOW, **redeploy))  # type: ignore[arg-type]
    intake.take(before.stopped(now=NOW))
    intake.now += timedelta(minutes=5)
    after = FakeVm(name="a", stream="00000000-0000-4000-8000-000000000001", version="2.0.0")
    at = intake.now - behind
    intake.take(after.started(now=at))
    intake.take(after.event("E", transition="ended", now=at, **redeploy))  # type: ignore[arg-type]
    intake.now += timedelta(minutes=1)
    intake.take(after.heartbeat(now=intake.now - behind))
    found = intake.vm(after)
    assert (found.contact, found.vm.version) == ("heard", "2.0.0")
    assert intake.event().event.state == "ended"


class LostStore:
    """A VM that has lost the store from which it reported event E, and begun a new one."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        old = FakeVm(name="a")
        intake.take(old.event("E", now=NOW), old.heartbeat(now=NOW))
        intake.now += timedelta(minutes=5)
        self.old = old
        self.new = FakeVm(name="a", stream="00000000-0000-4000-8000-000000000001")

    def beat(self, *, pending: int) -> Record:
        """A heartbeat after a good poll."""
        now = self.intake.now
        return self.new.heartbeat(now=now, lastPollTime=rfc3339(now), pendingEvents=pending)

    def state(self) -> str:
        """The state of the event."""
        return self.intake.event().event.state


@pytest.mark.parametrize("is_polled", [False, True], ids=["before a poll", "after a poll"])
def test_an_event_of_a_lost_store_is_over_once_the_vm_has_looked(
    intake: Intake, *, is_polled: bool
) -> None:
    """An event that was reported from a lost store is over at the first heartbeat after a poll,
    because the new store does not report it.
    """
    lost = LostStore(intake)
    intake.take(lost.new.started(now=intake.now))
    intake.take(lost.beat(pending=0) if is_polled else lost.new.heartbeat(now=intake.now))
    assert lost.state() == ("ended" if is_polled else "scheduled")


def test_an_event_of_a_lost_store_goes_on_if_the_new_one_reports_it(intake: Intake) -> None:
    """An event that the new store reports too is not over, and ends by its own record."""
    lost = LostStore(intake)
    intake.take(lost.new.started(now=intake.now), lost.new.event("E", now=intake.now))
    intake.take(lost.beat(pending=1))
    assert lost.state() == "scheduled"
    intake.take(lost.new.event("E", transition="ended", now=intake.now), lost.beat(pending=0))
    assert lost.state() == "ended"


def test_a_missing_record_of_a_new_store_may_be_about_the_event(intake: Intake) -> None:
    """While records of the new store are missing, an event of the lost one goes on."""
    lost = LostStore(intake)
    started = lost.new.started(now=intake.now)
    first = lost.new.event("E", now=intake.now)
    ended = lost.new.event("F", transition="ended", now=intake.now)
    intake.take(started, ended, lost.beat(pending=0))
    assert lost.state() == "scheduled"
    intake.take(first, lost.beat(pending=1))
    assert lost.state() == "scheduled"


def test_a_store_that_was_put_back_may_know_of_the_event(intake: Intake) -> None:
    """A VM that is back at its first store does not report again what that store knows: its
    heartbeat counts the event.
    """
    lost = LostStore(intake)
    intake.take(lost.new.started(now=intake.now), lost.new.event("E", now=intake.now))
    lost.new = lost.old
    intake.now += timedelta(minutes=5)
    intake.take(lost.beat(pending=1))
    assert lost.state() == "scheduled"


def test_a_vm_on_a_restored_disk_is_heard(intake: Intake) -> None:
    """A VM on a restored disk, which uses its sequences a second time, is heard because its
    heartbeats have newer times.
    """
    web = FakeVm()
    intake.take(*(web.heartbeat(now=NOW) for _ in range(50)))
    restored = FakeVm()
    intake.let_pass(600)
    beat = restored.heartbeat(now=intake.now)
    intake.take(beat)
    with intake.snapshots.open() as snapshot:
        found = snapshot.vms.find_vm(web.vm_id)
    assert found is not None
    assert found.contact == "heard"
    intake.let_pass(600)
    intake.take(beat)  # a copy of it proves nothing
    with intake.snapshots.open() as snapshot:
        found = snapshot.vms.find_vm(web.vm_id)
    assert found is not None
    assert found.contact == "silent"


@pytest.mark.parametrize("begins_with", ["started", "heartbeat", "event"])
def test_a_vm_that_had_stopped_is_heard_on_a_restored_disk(
    intake: Intake, begins_with: str
) -> None:
    """A VM that had stopped is heard with the first record from its restored disk, and stopped
    again once that copy reports so.
    """
    web = FakeVm()
    intake.take(web.heartbeat(now=NOW), web.heartbeat(now=NOW))
    copy = FakeVm(sequence=1)
    intake.let_pass(5)
    again = [web.heartbeat(now=intake.now) for _ in range(9)]
    farewell = web.stopped(now=intake.now)
    intake.take(*again, farewell)
    assert intake.vm(web).contact == "stopped"
    intake.let_pass(60)
    words = {"event": copy.event("E", now=intake.now), "started": copy.started(now=intake.now)}
    intake.take(words.get(begins_with) or copy.heartbeat(now=intake.now))
    assert intake.vm(web).contact == "heard"
    intake.take(again[-1], farewell)  # copies of before say nothing
    assert intake.vm(web).contact == "heard"
    intake.let_pass(5)
    intake.take(copy.stopped(now=intake.now))
    assert intake.vm(web).contact == "stopped"
