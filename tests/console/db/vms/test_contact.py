"""Contact: how a bridge is heard, from its row, the times at which consoles listened, and the
present time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select
from support.console.intake import Intake
from support.console.records import FakeVm

from console.db import rows
from console.db.bulk import upsert
from console.db.connection.opening import Database
from console.db.schema import tables
from console.db.vms.contact import contact_of, may_have_unread
from console.fleet.contact import BY_HEARTBEATS, Contact, Interval, Listening, SilentTime
from console.fleet.values.stream import SequenceGap
from console.fleet.values.vm import HeardVm, Vm

START = 1_000_000.0


LISTENING = Listening(
    silent_time=SilentTime(seconds=100.0),
    intervals={"mqtt": [Interval(since=START - 1000, until=START + 1000)]},
    connected={"mqtt": True},
)


VM = Vm(vm_id="id", name="web-1", heard_at=START, heard_source="mqtt")


def judged(database: Database, vm: Vm, now: float, listening: Listening) -> str:
    """Return the word for a VM, as the database finds it."""
    with database.writing.begin() as connection:
        upsert(connection, tables.vm, [rows.vm_row(vm)])
        word: str = connection.execute(select(contact_of(tables.vm, now, listening))).scalar_one()
    return word


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0, "heard"), (50, "heard"), (50.5, "late"), (100, "late"), (100.5, "silent")],
)
def test_silence_grows_in_three_steps(database: Database, age: float, expected: Contact) -> None:
    """A VM is late after half of its silent time, and silent after the whole, and not before."""
    listening = replace(LISTENING, intervals={"mqtt": [Interval(since=START, until=START + age)]})
    assert expected == judged(database, VM, START + age, listening)


def test_three_heartbeats_are_the_silent_time_unless_given(database: Database) -> None:
    """The silent time is three of the VM's own heartbeat intervals; the setting overrides that."""
    unset = replace(LISTENING, silent_time=BY_HEARTBEATS)
    assert unset.silent_time.of(None) == 180
    assert unset.silent_time.of(10.0) == 30
    assert LISTENING.silent_time.of(10.0) == 100
    assert judged(database, VM, START + 179, unset) == "late"
    assert judged(database, replace(VM, interval=10.0), START + 31, unset) == "silent"
    assert judged(database, replace(VM, interval=10.0), START + 31, LISTENING) == "heard"


def test_a_vm_is_learning_while_nobody_listened_for_its_silent_time(database: Database) -> None:
    """A VM is learning, and not silent, until a console has listened for its silent time."""
    away = replace(LISTENING, intervals={"mqtt": [Interval(since=START + 500, until=START + 599)]})
    assert judged(database, VM, START + 599, away) == "learning"
    back = replace(LISTENING, intervals={"mqtt": [Interval(since=START + 500, until=START + 601)]})
    assert judged(database, VM, START + 601, back) == "silent"
    assert judged(database, VM, START + 601, replace(LISTENING, intervals={})) == "learning"


def test_a_restart_of_three_seconds_changes_nothing(database: Database) -> None:
    """A short restart of the console changes neither a heard nor a silent VM."""
    around = [
        Interval(since=START - 1000, until=START + 20),
        Interval(since=START + 23, until=START + 24),
    ]
    listening = replace(LISTENING, intervals={"mqtt": around})
    assert judged(database, VM, START + 24, listening) == "heard"
    silent = replace(VM, heard_at=START - 200)
    assert judged(database, silent, START + 24, listening) == "silent"


def test_a_vm_is_not_late_while_no_console_listened(database: Database) -> None:
    """After an absence of the console for a minute, a VM that may have sent something is not late,
    and due decisions stay due.
    """
    around = [
        Interval(since=START - 1000, until=START + 10),
        Interval(since=START + 90, until=START + 92),
    ]
    listening = replace(LISTENING, intervals={"mqtt": around})
    assert judged(database, VM, START + 92, listening) == "heard"
    assert judged(database, VM, START + 101, listening) == "learning"
    before = replace(VM, heard_at=START - 45)
    assert judged(database, before, START + 12, listening) == "late"


def test_a_source_that_was_given_up_is_judged_by_the_others(database: Database) -> None:
    """A VM of a removed source becomes silent if no other source hears it."""
    gone = replace(VM, heard_source="old")
    assert judged(database, gone, START + 101, LISTENING) == "silent"
    assert judged(database, gone, START + 99, LISTENING) == "late"


def test_a_lost_connection_is_silent_at_once(database: Database) -> None:
    """A last will makes a VM silent at once, whether or not a console listened."""
    lost = replace(VM, lost_at=START + 1)
    assert judged(database, lost, START + 1, LISTENING) == "silent"
    assert judged(database, lost, START + 2, Listening()) == "silent"


def test_a_stopped_one_stays_stopped(database: Database) -> None:
    """A VM that has stopped does not become silent, however long ago that was."""
    stopped = replace(VM, stopped_at=START)
    assert judged(database, stopped, START + 10_000_000, LISTENING) == "stopped"
    assert judged(database, replace(stopped, lost_at=START), START + 2, LISTENING) == "stopped"


def test_a_retired_one_is_retired(database: Database) -> None:
    """A retired VM is retired, whatever else its row says."""
    retired = replace(VM, retired_at=START, stopped_at=START, lost_at=START)
    assert judged(database, retired, START + 1, LISTENING) == "retired"


def test_after_a_clock_that_was_ahead_each_vm_has_its_silent_time(database: Database) -> None:
    """After the clock was ahead, a VM is silent after its silent time, and one that takes commands
    has to say so again.
    """
    intake, vm = Intake(database), FakeVm(interval=60.0)
    intake.let_pass(3600)
    intake.take(vm.heartbeat(now=intake.now))
    intake.now -= timedelta(seconds=3500)
    intake.listen_since(intake.now)
    intake.let_pass(4)
    assert intake.vm(vm).contact == "heard"
    assert intake.vm(vm).vm.heard_at == intake.now.timestamp()
    heard = [passed(intake, vm, 30).contact for _ in range(7)]
    assert heard == ["heard"] * 3 + ["late"] * 3 + ["silent"]
    intake.take(vm.heartbeat(now=intake.now))
    assert intake.vm(vm).contact == "heard"


def passed(intake: Intake, vm: FakeVm, seconds: float) -> HeardVm:
    """Return a VM after some time without a message."""
    intake.let_pass(seconds)
    return intake.vm(vm)


def test_a_clock_that_goes_back_silences_no_vm(database: Database) -> None:
    """A VM that was heard in the future, by a clock that was set back, is heard."""
    assert judged(database, VM, START - 3600, LISTENING) == "heard"


def has_unread(database: Database, vm: Vm, now: float, listening: Listening) -> bool:
    """Return whether a VM may have told something that is not known, as the database finds it."""
    with database.writing.begin() as connection:
        upsert(connection, tables.vm, [rows.vm_row(vm)])
        unread = may_have_unread(tables.vm, now, listening, retaining={"mqtt"})
        return bool(connection.execute(select(unread)).scalar_one())


AGAIN = replace(LISTENING, unbroken_since=START - 60)
"""Consoles listen again for a minute at `START`."""


@pytest.mark.parametrize(
    ("source", "heard", "read", "expected"),
    [
        ("web", -59, None, False),  # its records come in order
        ("web", -61, None, True),
        ("mqtt", -59, -59, False),
        ("mqtt", -61, -59, True),  # its line may have been cut too, and the document is old
        ("mqtt", -59, -61, True),
        ("mqtt", -59, None, False),  # a bridge that retains nothing
        ("mqtt", -61, None, True),
    ],
)
def test_a_vm_may_have_told_what_is_unread_until_it_is_heard_again(
    database: Database, source: str, heard: float, read: float | None, expected: bool
) -> None:
    """After a time in which nothing could be stored, or its source was away, a VM may have told
    something until it was heard again, and where the source keeps its state document, until that
    was read.
    """
    state_at = None if read is None else START + read
    vm = replace(VM, heard_source=source, heard_at=START + heard, state_at=state_at)
    assert has_unread(database, vm, START, AGAIN) == expected
    source_again = replace(LISTENING, again_since={source: START - 60})
    assert has_unread(database, vm, START, source_again) == expected
    assert not has_unread(database, vm, START, replace(LISTENING, again_since={"another": START}))


def test_a_state_document_that_never_comes_holds_up_nobody_for_long(database: Database) -> None:
    """A broker may have lost it: after two minutes, to be heard is enough."""
    vm = replace(VM, heard_at=START, state_at=START - 70)
    assert has_unread(database, vm, START + 59, AGAIN)
    assert not has_unread(database, vm, START + 61, AGAIN)


def test_a_vm_of_which_records_are_missing_has_unread_ones_until_its_state_is_read(
    database: Database,
) -> None:
    """What it told in a missing record is in its state document; one of before does not say it."""
    vm = replace(VM, stream="s", state_at=START - 10, missing_records=3)
    gap = SequenceGap(vm_id="id", stream="s", first=4, last=6, found_at=START - 5, seconds=1)
    with database.writing.begin() as connection:
        upsert(connection, tables.gap, [rows.gap_row(gap)])
    assert has_unread(database, vm, START, LISTENING)
    assert not has_unread(database, replace(vm, state_at=START - 4), START, LISTENING)
    assert not has_unread(database, replace(vm, stream="later"), START, LISTENING)


def test_a_vm_that_sends_by_itself_has_some_seconds_to_try_again(database: Database) -> None:
    """After a short restart, a broker sends at once what has waited there."""
    for source, expected in (("web", True), ("mqtt", False)):
        just = replace(LISTENING, just_since={source: START - 5})
        vm = replace(VM, heard_source=source, heard_at=START - 20)
        assert has_unread(database, vm, START, just) == expected
        assert not has_unread(database, replace(vm, heard_at=START - 4), START, just)


def test_a_vm_whose_newest_record_is_old_has_unread_ones(database: Database) -> None:
    """It sends what waited there, the oldest first: that it prepares may come last."""
    vm = replace(VM, heard_at=START, record_waited=20.0)
    assert has_unread(database, vm, START + 60, LISTENING)
    assert not has_unread(database, vm, START + 121, LISTENING)
    assert not has_unread(database, replace(vm, record_waited=1.0), START, LISTENING)
