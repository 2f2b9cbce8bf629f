"""What a batch of records changes, without a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from support.console.records import FakeVm

from console.fleet.batch import LoadedRows
from console.fleet.fold import MAX_GAPS, fold
from console.records.incoming import IncomingMessage, IncomingRecord
from console.records.parse import parse_record, parse_state, parse_status
from wire.moment import rfc3339
from wire.record import PREPARATION, Record

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
AT = NOW.timestamp()


def incoming(record: Record, *, at: float = AT, sent_at: float | None = None) -> IncomingRecord:
    """Return a record as it comes in at a time."""
    return parse_record(record.body, source="mqtt", received_at=at, sent_at=sent_at)


def fold_records(known: LoadedRows, *records: Record, at: float = AT) -> None:
    """Fold records into what is known."""
    fold(known, [incoming(record, at=at) for record in records])


def missing(known: LoadedRows, vm: FakeVm) -> int:
    """Return how many records of a VM are missing; the row and the gaps agree."""
    row = known.vms[vm.vm_id].missing_records
    assert row == sum(gap.size for gaps in known.gaps.values() for gap in gaps)
    return row


def events(vm: FakeVm, count: int) -> list[Record]:
    """Return records of so many events, a second apart."""
    return [vm.event(f"E{n}", now=NOW + timedelta(seconds=n)) for n in range(count)]


def test_a_hole_in_the_sequence_is_counted_and_filled() -> None:
    """Two records that did not come count as two missing ones, and as none once they come late."""
    known, vm = LoadedRows(), FakeVm()
    records = events(vm, 5)
    fold_records(known, records[0], records[3], records[4])
    assert missing(known, vm) == 2
    fold_records(known, records[2])
    assert missing(known, vm) == 1
    fold_records(known, records[1])
    assert missing(known, vm) == 0


def test_gaps_that_may_be_filled_are_bounded_and_all_are_counted() -> None:
    """A VM that leaves a gap after each record has a limited number of stored gaps, and all its
    missing records are counted.
    """
    known, vm = LoadedRows(), FakeVm()
    records = [vm.event(f"E{n % 10}", now=NOW) for n in range(2 * MAX_GAPS + 101)]
    fold_records(known, *records[::2])
    assert known.vms[vm.vm_id].missing_records == MAX_GAPS + 50
    assert len(known.gaps[(vm.vm_id, vm.stream)]) == MAX_GAPS
    fold_records(known, records[-2])
    assert known.vms[vm.vm_id].missing_records == MAX_GAPS + 49


def test_records_before_the_first_are_taken_too() -> None:
    """If a console begins in the middle of a stream, earlier records that come late are
    accepted.
    """
    known, vm = LoadedRows(), FakeVm()
    records = events(vm, 4)
    fold_records(known, records[3])
    assert missing(known, vm) == 0
    fold_records(known, records[0])
    assert missing(known, vm) == 2
    fold_records(known, records[1], records[2])
    assert missing(known, vm) == 0


@pytest.mark.parametrize("seed", range(25))
def test_any_order_and_any_number_of_copies_come_to_the_same(seed: int) -> None:
    """In whatever order records and copies come, each record is stored once and none is missing."""
    random, known, vm = Random(seed), LoadedRows(), FakeVm()
    records = events(vm, 12)
    records.append(vm.event("E0", transition="ended", now=NOW + timedelta(minutes=1)))
    batch: list[IncomingMessage] = [incoming(record) for record in records * 3]
    random.shuffle(batch)
    stored: set[str] = set()
    while batch:
        size = random.randint(1, 6)
        stored |= set(fold(known, batch[:size]).records)
        batch = batch[size:]
    assert stored == {record.id for record in records}
    assert missing(known, vm) == 0
    assert known.vms[vm.vm_id].sequence == 13
    assert known.reports[("E0", vm.vm_id)].report.state == "ended"


def test_heartbeats_that_were_replaced_are_not_gaps() -> None:
    """Heartbeats that were replaced count as no gap: a heartbeat states the newest sequence that is
    none.
    """
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.event("E1", now=NOW))
    beats = [vm.heartbeat(now=NOW + timedelta(seconds=n)) for n in range(5)]
    fold_records(known, beats[4])
    assert missing(known, vm) == 0


def test_a_record_that_a_heartbeat_knows_of_is_a_gap() -> None:
    """An event's record that was lost among replaced heartbeats counts as missing."""
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.event("E1", now=NOW))
    vm.heartbeat(now=NOW)
    lost = vm.event("E2", now=NOW)
    vm.heartbeat(now=NOW)
    fold_records(known, vm.heartbeat(now=NOW + timedelta(seconds=1)))
    assert missing(known, vm) == 2
    fold_records(known, lost)
    assert missing(known, vm) == 1


def test_heartbeats_of_a_long_absence_are_not_gaps() -> None:
    """Between two records, as many missing sequences count as heartbeats as were due in
    that time.
    """
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.heartbeat(now=NOW), vm.event("E1", now=NOW))
    for minute in range(1, 11):
        vm.heartbeat(now=NOW + timedelta(minutes=minute))
    fold_records(known, vm.event("E2", now=NOW + timedelta(minutes=10, seconds=1)))
    assert missing(known, vm) == 0


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("second", [1, 59])
def test_heartbeats_are_told_from_losses_by_their_clock(second: int, lost: int) -> None:
    """Between two events with heartbeats between them, one lost record counts as one, and none as
    none.
    """
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.heartbeat(now=NOW))
    fold_records(known, vm.event("E1", now=NOW + timedelta(seconds=second)))
    for minute in (1, 2, 3):
        vm.heartbeat(now=NOW + timedelta(minutes=minute))
    for number in range(lost):
        vm.event(f"LOST-{number}", now=NOW)
    fold_records(known, vm.event("E2", now=NOW + timedelta(minutes=3, seconds=60 - second)))
    assert missing(known, vm) == lost


def test_a_heartbeat_that_was_made_beside_an_observation_is_not_a_gap() -> None:
    """An event that was observed just before a heartbeat and committed just after it
    makes no gap.
    """
    known, vm = LoadedRows(), FakeVm(interval=1.0)
    fold_records(known, vm.heartbeat(now=NOW))
    for second in (1, 2, 3):
        vm.heartbeat(now=NOW + timedelta(seconds=second * 1.02))
    fold_records(known, vm.event("E", now=NOW + timedelta(seconds=2.99)))
    assert missing(known, vm) == 0


@pytest.mark.parametrize(("interval", "left"), [(1.0, 0), (60.0, 1)])
def test_a_gap_before_the_first_heartbeat_is_judged_by_it(interval: float, left: int) -> None:
    """The first heartbeat states the interval; sequences before it that may have been heartbeats
    then count as no gap.
    """
    known, vm = LoadedRows(), FakeVm(interval=interval)
    fold_records(known, vm.event("E1", now=NOW))
    vm.heartbeat(now=NOW)
    fold_records(known, vm.event("E2", now=NOW + timedelta(seconds=1)))
    assert missing(known, vm) == 1
    fold_records(known, vm.heartbeat(now=NOW + timedelta(seconds=2)))
    assert missing(known, vm) == left


def test_a_new_stream_begins_at_its_own_number() -> None:
    """The new stream of a lost store makes no gap, and the newer stream counts."""
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, *events(vm, 3))
    again = FakeVm(stream="another-stream", version="2.0.0", revisions=dict(vm.revisions))
    fold_records(known, again.event("E9", now=NOW + timedelta(minutes=1)))
    assert missing(known, vm) == 0
    assert known.vms[vm.vm_id].version == "2.0.0"
    fold_records(known, vm.event("E5", now=NOW + timedelta(seconds=30)))
    assert known.vms[vm.vm_id].version == "2.0.0"


def test_a_clock_that_was_a_day_ahead_hides_no_new_store() -> None:
    """After a clock was a day ahead, the version and the farewell of a new store with the right
    clock count.
    """
    known, vm = LoadedRows(), FakeVm(version="1.0.0")
    fold_records(known, vm.started(now=NOW + timedelta(days=1)))
    again = FakeVm(version="2.0.0", stream="stream-2")
    fold_records(known, again.started(now=NOW + timedelta(seconds=60)), at=AT + 61)
    assert known.vms[vm.vm_id].version == "2.0.0"
    fold_records(known, again.stopped(now=NOW + timedelta(seconds=90)), at=AT + 91)
    assert known.vms[vm.vm_id].stopped_at is not None


def incoming_status(vm: FakeVm, status: str, *, at: float = AT, **more: object) -> IncomingMessage:
    """Return a status as it comes in."""
    body = vm.status(status, **more)  # type: ignore[arg-type]
    return parse_status(body, source="mqtt", received_at=at, vm_id=vm.vm_id, site="default")


def test_a_stopped_bridge_that_is_lost_has_stopped() -> None:
    """A bridge that has reported its stop counts as stopped, whatever the broker reports of its
    connection later.
    """
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.started(now=NOW), vm.stopped(now=NOW))
    fold(known, [incoming_status(vm, "offline", reason="closed", at=AT + 1)])
    assert known.vms[vm.vm_id].stopped_at is not None
    again = FakeVm(session="session-2")
    fold(known, [incoming_status(again, "online", at=AT + 60)])
    assert known.vms[vm.vm_id].stopped_at is None


def test_a_will_that_is_told_again_changes_nothing() -> None:
    """A retained will that the broker delivers at each connect does not make a VM lost that was
    heard since.
    """
    known, vm = LoadedRows(), FakeVm()
    will = incoming_status(vm, "offline", reason="lost")
    fold(known, [will])
    assert known.vms[vm.vm_id].lost_at is not None
    fold_records(known, vm.heartbeat(now=NOW), at=AT + 10)
    assert known.vms[vm.vm_id].lost_at is None
    fold(known, [incoming_status(vm, "offline", reason="lost", at=AT + 20)])
    assert known.vms[vm.vm_id].lost_at is None


def test_a_will_of_an_earlier_run_that_comes_late_changes_nothing() -> None:
    """The will of a run that another run has followed neither makes the VM lost nor takes its
    command channel; that of a run of which only the will is known does.
    """
    known, vm = LoadedRows(), FakeVm()
    for number in range(3):
        vm.session = f"session-{number}"
        fold_records(known, vm.started(now=NOW), at=AT + 5 * number)
    online = incoming_status(vm, "online", at=AT + 10, commands=True)
    fold(known, [online])
    for number in (0, 1):
        earlier = FakeVm(session=f"session-{number}")
        fold(known, [incoming_status(earlier, "offline", reason="lost", at=AT + 20)])
        row = known.vms[vm.vm_id]
        assert (row.lost_at, row.command_source, row.instance_id) == (None, "mqtt", "session-2")
    third = FakeVm(session="session-3")
    fold(known, [incoming_status(third, "offline", reason="lost", at=AT + 30)])
    row = known.vms[vm.vm_id]
    assert (row.lost_at, row.command_source) == (AT + 30, None)


def test_the_will_at_the_topic_of_a_former_site_changes_nothing() -> None:
    """A will that the broker keeps at the topic of a former site does not make the VM lost, which
    is online at another topic now.
    """
    known, vm = LoadedRows(), FakeVm(session="session-9")
    fold_records(known, vm.started(now=NOW))
    fold(known, [incoming_status(vm, "online", commands=True)])
    former = FakeVm(session="session-0").status("offline", reason="lost")
    will = parse_status(former, source="mqtt", received_at=AT + 5, vm_id=vm.vm_id, site="former")
    fold(known, [will])
    row = known.vms[vm.vm_id]
    assert (row.lost_at, row.command_source, row.status_site) == (None, "mqtt", "default")


def test_a_status_counts_although_the_clock_was_ahead_in_the_run_before() -> None:
    """The status of a new run counts although the records of the run before had later times, since
    the clock was ahead then.
    """
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.started(now=NOW + timedelta(minutes=2)))
    again = FakeVm(session="session-2")
    online = again.status(commands=True, time=rfc3339(NOW + timedelta(seconds=20)))
    fold(
        known,
        [parse_status(online, source="mqtt", received_at=AT + 20, vm_id=vm.vm_id, site="default")],
    )
    assert known.vms[vm.vm_id].command_source == "mqtt"


def states(vm: FakeVm, pending: Sequence[Record], *, after: float) -> IncomingMessage:
    """Return a state document of so many seconds later."""
    body = vm.state(*pending, now=NOW + timedelta(seconds=after))
    return parse_state(body, source="mqtt", received_at=AT + after, vm_id=vm.vm_id, site="default")


def test_a_state_rebuilds_what_was_missed() -> None:
    """A state document adds pending events and ends those that it does not list; records count
    more.
    """
    known, vm = LoadedRows(), FakeVm()
    first, second = vm.event("E1", now=NOW), vm.event("E2", now=NOW + timedelta(seconds=5))
    fold_records(known, first)
    fold(known, [states(vm, [second], after=10)])
    assert {event_id: each.report.state for (event_id, _), each in known.reports.items()} == {
        "E1": "ended",
        "E2": "scheduled",
    }
    assert known.reports[("E1", vm.vm_id)].report.event.event_status == "Unknown"
    ended = vm.event("E1", transition="ended", status="Canceled", now=NOW + timedelta(seconds=8))
    fold_records(known, second, ended, at=AT + 20)
    assert known.reports[("E1", vm.vm_id)].report.event.event_status == "Canceled"
    assert known.reports[("E1", vm.vm_id)].report.state == "ended"
    assert known.reports[("E2", vm.vm_id)].report.event.event_source == "Platform"


def test_a_state_that_is_older_than_a_record_ends_nothing() -> None:
    """A state document from before an event does not end that event."""
    known, vm = LoadedRows(), FakeVm()
    fold_records(known, vm.event("E1", now=NOW + timedelta(seconds=30)), at=AT + 31)
    fold(known, [states(vm, [], after=10)])
    assert known.reports[("E1", vm.vm_id)].report.state == "scheduled"


def test_a_store_that_was_put_back_is_believed() -> None:
    """If a store was put back and uses its sequences again, the later record says how the
    event is.
    """
    known, vm = LoadedRows(), FakeVm()
    first = vm.event("E0", now=NOW)
    copy = replace(vm, revisions=dict(vm.revisions))
    for minute in range(1, 5):
        fold_records(known, first, vm.event("E0", now=NOW + timedelta(minutes=minute)))
    fold_records(
        known, copy.event("E0", transition="ended", now=NOW + timedelta(minutes=9)), at=AT + 540
    )
    assert known.reports[("E0", vm.vm_id)].report.state == "ended"


@pytest.mark.parametrize("learned", ["from a state", "from records"])
def test_a_new_store_counts_revisions_from_the_beginning(learned: str) -> None:
    """After a VM has lost its store, its records and state documents count although revisions begin
    with 1 again.
    """
    known, vm = LoadedRows(), FakeVm()
    records = [vm.event("E", transition="updated", now=NOW) for _ in range(5)]
    if learned == "from a state":
        fold(known, [states(vm, records[-1:], after=1)])
    else:
        fold_records(known, *records, at=AT + 1)
    new = FakeVm(stream="another")
    later = NOW + timedelta(seconds=10)
    fold_records(known, new.started(now=later), at=AT + 10)
    moved = new.event("E", not_before="2031-01-01T00:00:00.000Z", now=later)
    fold(known, [states(new, [moved], after=11)])
    assert known.reports[("E", vm.vm_id)].report.fingerprint == moved.data["fingerprint"]
    started = new.event("E", transition="started", now=NOW + timedelta(seconds=20))
    fold_records(known, started, at=AT + 20)
    assert known.reports[("E", vm.vm_id)].report.state == "started"


class PreparingVm:
    """A VM that prepares for one event, and reports that by records and state documents."""

    def __init__(self) -> None:
        self.known, self.vm = LoadedRows(), FakeVm()
        self.told = self.report()

    def report(
        self, transition: str = "scheduled", *, second: float = 0, clock: float = 0
    ) -> Record:
        """Take in a record about the event; `clock`: seconds by which the VM's clock is ahead."""
        told = self.vm.event(
            "E", transition=transition, now=NOW + timedelta(seconds=second + clock)
        )
        fold_records(self.known, told, at=AT + second)
        return told

    def record(self, state: str, *, second: float, clock: float = 0) -> Record:
        """Return a record about the preparation, which has not come in."""
        data = {"evt": "E", "evh": self.told.data["fingerprint"], "sink": "drain", "state": state}
        more = {"cause": "deadline", "reason": None}
        at = NOW + timedelta(seconds=second + clock)
        return self.vm.record(PREPARATION, data | more, now=at)

    def document(self, preparation: str, *, second: float) -> None:
        """Take in the state document of a second."""
        body = json.loads(self.vm.state(self.told, now=NOW + timedelta(seconds=second)))
        body["events"][0]["preparation"] = preparation
        at = AT + second
        said = parse_state(
            json.dumps(body).encode(),
            source="mqtt",
            received_at=at,
            vm_id=self.vm.vm_id,
            site="default",
        )
        fold(self.known, [said])

    @property
    def state(self) -> str:
        """The state of the preparation, as the console knows it."""
        return self.known.preparations[("E", self.vm.vm_id)].content.state


@pytest.mark.parametrize("is_lost", [False, True], ids=["record late", "record lost"])
def test_a_document_that_came_before_a_record_hides_no_recovery(*, is_lost: bool) -> None:
    """If a VM boots with its clock ten minutes back, its recovery counts, because the order of its
    records does.
    """
    one = PreparingVm()
    late = one.record("prepared", second=1)
    one.document("prepared", second=2)
    if not is_lost:
        fold_records(one.known, late, at=AT + 3)
    one.report("ended", second=60, clock=-600)
    fold_records(one.known, one.record("recovered", second=70, clock=-600), at=AT + 70)
    assert one.state == "recovered"


def test_a_document_that_came_before_a_record_hides_no_end_of_the_program() -> None:
    """If the clock is set back while the program runs, the record of the program's end counts."""
    one = PreparingVm()
    late = one.record("preparing", second=1)
    one.document("preparing", second=2)
    fold_records(one.known, late, at=AT + 3)
    fold_records(one.known, one.record("prepared", second=30, clock=-600), at=AT + 30)
    assert one.state == "prepared"


def test_the_recovery_from_an_earlier_stay_comes_in_after_a_newer_document() -> None:
    """A recovery from an earlier stay of the event, whose record comes in late, does not undo the
    preparation for the newer stay.
    """
    one = PreparingVm()
    first = one.record("prepared", second=1)
    ended = one.vm.event("E", transition="ended", now=NOW + timedelta(seconds=2))
    recovered = one.record("recovered", second=3)
    one.told = one.vm.event("E", now=NOW + timedelta(seconds=4))
    again = [one.record("preparing", second=5), one.record("prepared", second=6)]
    one.document("prepared", second=7)
    for each in (first, ended, recovered, one.told, *again):
        fold_records(one.known, each, at=AT + 8)
        assert one.state == "prepared"


def test_what_has_waited_at_a_vm_is_known() -> None:
    """A record is compared with the last heartbeat on its way, so the VM's clock may be wrong."""
    known, vm = LoadedRows(), FakeVm()
    wrong = NOW - timedelta(seconds=50)
    fold_records(known, vm.heartbeat(now=wrong))
    fold_records(known, vm.event("E1", now=wrong + timedelta(seconds=10)), at=AT + 10.5)
    assert known.vms[vm.vm_id].record_waited == 0.5
    fold_records(known, vm.event("E2", now=wrong + timedelta(seconds=20)), at=AT + 90)
    assert known.vms[vm.vm_id].record_waited == 70
    fold_records(known, vm.heartbeat(now=wrong + timedelta(seconds=91)), at=AT + 91)
    assert known.vms[vm.vm_id].record_waited == 0
