"""Turns while the clock of the console or of a VM is wrong, or the silent time is short."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.turn_cluster import TurnCluster

from console.audit.audit_log import all_rows
from console.db.connection.opening import Database
from console.fleet.contact import SilentTime
from wire.record import PREPARATION


def test_a_clock_that_was_set_back_hides_no_crash(cluster: TurnCluster) -> None:
    """If the clock was set back, a VM that was heard in the future may have crashed long ago, so no
    other VM is released.
    """
    cluster.announce(0)
    cluster.now -= timedelta(minutes=10)
    assert cluster.step() == []
    cluster.hear()
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET heard_at = {cluster.now.timestamp()} WHERE name <> 'db-2'"
        )
    assert cluster.step() == []
    cluster.now += timedelta(minutes=10)
    cluster.hear()
    assert cluster.step() == ["prepare db-0"]


def test_turns_go_on_after_the_clock_was_set_back(cluster: TurnCluster) -> None:
    """After the clock was set back, a VM is asked again within a minute and counts as back after
    its event, but not because of what was heard before.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.set_back()
    assert cluster.step() == []
    cluster.wait(45)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.wait(20)
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.now += timedelta(seconds=1)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.set_back()
    for _ in range(3):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=15)
    cluster.hear()
    assert cluster.step() == ["prepare db-1"]
    assert cluster.state(0) == "over"


def test_a_vm_rests_as_long_after_the_clock_was_set_back(database: Database) -> None:
    """After the clock was set back, the rest of a VM begins again."""
    cluster = TurnCluster(database, rest=120)
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    cluster.step()
    cluster.end(0)
    cluster.wait(1)
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert cluster.step() == []
    cluster.set_back()
    cluster.wait(100)
    assert cluster.step() == []
    cluster.wait(60)
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize("behind", [0, 20])
def test_a_vm_whose_clock_is_behind_is_back_once_it_has_recovered(
    cluster: TurnCluster, behind: int
) -> None:
    """A VM whose event is cancelled soon after the command is back once it has recovered, although
    its clock is behind: the order of its records counts.
    """
    vm = cluster.vms[0]
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    fingerprint = cluster.known_event(0).shown.report.fingerprint
    data = {"evt": "E-0", "evh": fingerprint, "sink": "drain", "cause": "deadline", "reason": None}
    real = cluster.now
    for second, told in ((1, "accepted"), (3, "prepared"), (3, "confirmed"), (10, "recovered")):
        cluster.now = real + timedelta(seconds=second)
        its = cluster.now - timedelta(seconds=behind)
        if told in ("accepted", "confirmed"):
            rows = [row for row in all_rows(cluster.database.reading) if row.action == "prepare"]
            about = {"jti": rows[-1].jti, "act": "prepare", "actor": "group:db", "now": its}
            cluster.tell(vm.receipt("E-0", told, **about))
            continue
        if told == "recovered":
            cluster.tell(vm.event("E-0", transition="ended", now=its))
            cluster.step()
        cluster.tell(vm.record(PREPARATION, data | {"state": told}, now=its))
    cluster.wait(60)
    assert "prepare db-1" in cluster.step()


def test_a_clock_that_was_set_back_makes_no_earlier_stay_an_answer(cluster: TurnCluster) -> None:
    """A recovery from the first stay of the event is no answer to the command of the second stay,
    whose records are still on their way.
    """
    soon = cluster.later(hours=10)
    later = cluster.later(hours=11)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.wait(200)
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    assert cluster.step() == ["prepare db-0"]
    real, cluster.now = cluster.now, cluster.now - timedelta(minutes=10)
    rows = [row for row in all_rows(cluster.database.reading) if row.action == "prepare"]
    about = {"jti": rows[-1].jti, "act": "prepare", "actor": "group:db", "now": cluster.now}
    receipt = cluster.vms[0].receipt("E-0", "accepted", **about)
    cluster.now = real
    cluster.tell(receipt)
    cluster.end_turn(0, force=True)
    cluster.wait(71)
    assert cluster.step() == []


def pass_seconds(
    cluster: TurnCluster, seconds: range, *, gone: frozenset[int] = frozenset()
) -> None:
    """Let each second pass; each VM that is not gone has a heartbeat every 60 s, at its
    own time.
    """
    for second in seconds:
        cluster.now += timedelta(seconds=1)
        beating = [
            vm
            for number, vm in enumerate(cluster.vms)
            if (20 * number) % 60 == second % 60 and number not in gone
        ]
        if beating:
            cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in beating))


@pytest.mark.parametrize("person", [False, True])
def test_a_short_silent_time_stops_no_turn(database: Database, *, person: bool) -> None:
    """Turns continue although half of the silent time is shorter than the time between two
    heartbeats.
    """
    keys = {"approve": None} if person else {}
    cluster = TurnCluster(database, silent_time=SilentTime(seconds=90), **keys)
    pass_seconds(cluster, range(59))
    cluster.announce(1)
    if person:
        cluster.approve(1)
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()


def test_a_short_silent_time_frees_no_vm_whose_end_a_peer_has_reported(database: Database) -> None:
    """With a short silent time too, a VM that Azure took without a turn counts as away until it is
    heard.
    """
    cluster = TurnCluster(database, silent_time=SilentTime(seconds=90))
    pass_seconds(cluster, range(1, 61))
    cluster.told_by((0, 2), "started")
    cluster.announce(1)
    sent = []
    for begin in range(60, 200, 10):
        pass_seconds(cluster, range(begin, begin + 10), gone=frozenset({0}))
        if begin == 100:
            cluster.told_by((2,), "ended")
        cluster.settle()
        sent += cluster.step()
        is_over = cluster.known_event(0).event.state == "ended"
        assert is_over == (begin >= 100)
    assert sent == []
    cluster.told_by((0,), "ended")
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()
