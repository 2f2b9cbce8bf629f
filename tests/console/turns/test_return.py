"""From when on a VM is away, and when it is back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.console.records import FakeVm
from support.console.turn_cluster import TurnCluster

from console.db.connection.opening import Database
from console.db.upkeep.retention import delete_before
from console.fleet.preparations import MAX_PREPARATIONS
from wire.moment import rfc3339
from wire.record import PREPARATION


def test_a_vm_that_prepared_without_a_turn_is_away_until_it_has_recovered(
    cluster: TurnCluster,
) -> None:
    """A VM that prepared at its own deadline, while no console ran, counts as away after its event
    until it has recovered.
    """
    cluster.announce(0)
    cluster.says(0, "prepared")
    cluster.end(0)
    cluster.announce(1)
    assert cluster.step() == []
    assert (cluster.state(0), cluster.state(1)) == ("away", "waiting")
    cluster.wait(5)
    assert cluster.step() == []
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_prepares_no_more_is_away_until_a_person_ends_its_turn(
    cluster: TurnCluster,
) -> None:
    """A VM that has prepared, and comes back with settings by which it prepares nothing, counts as
    away: its program was not told the end. It will report no recovery, so a person ends the turn.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.step()
    cluster.wait(1)
    assert cluster.step() == []
    vm = cluster.vms[0]
    cluster.status(vm, vm.status(commands=True, prepares=False, time=rfc3339(cluster.now)))
    assert cluster.step() == []
    cluster.end_turn(0, force=True)
    cluster.now += timedelta(minutes=12)  # its command to prepare is not valid any more
    cluster.hear_only(cluster.vms[1:])
    cluster.hear_of([0], prepares=False)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_has_prepared_at_its_deadline_and_prepares_no_more_is_away(
    cluster: TurnCluster,
) -> None:
    """A VM that has prepared without a turn, and restarts with settings by which it prepares
    nothing, counts as away.
    """
    cluster.told_by([0], "scheduled")
    cluster.says(0, "prepared")
    cluster.hear_of([0], prepares=False)
    cluster.announce(1)
    assert "prepare db-1" not in cluster.step()


def test_a_vm_that_prepares_is_away_before_its_first_heartbeat(cluster: TurnCluster) -> None:
    """A VM that prepares at its own deadline counts as away for a new console even before its first
    heartbeat.
    """
    fresh = FakeVm(name="db-9")
    soon = cluster.later(minutes=1)
    cluster.tell(fresh.event("E-9", now=cluster.now, not_before=soon))
    fingerprint = cluster.known_event(9).shown.report.fingerprint
    data = {"evt": "E-9", "evh": fingerprint, "sink": "drain", "cause": "deadline", "reason": None}
    cluster.tell(fresh.record(PREPARATION, data | {"state": "prepared"}, now=cluster.now))
    cluster.announce(1)
    assert cluster.step() == []


def test_a_vm_that_confirms_that_it_is_prepared_is_away(cluster: TurnCluster) -> None:
    """A VM that confirms by a receipt that it is prepared counts as away even if its records do not
    come in.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("accepted")
    cluster.answer("confirmed")
    for _ in range(12):
        cluster.wait(50)
        cluster.step()
        assert cluster.state(1) == "waiting"


def test_a_vm_that_has_prepared_a_thousand_times_is_away_as_any_other(cluster: TurnCluster) -> None:
    """A VM that has prepared and recovered a thousand times counts as away when it prepares again:
    its oldest preparations make room.
    """
    fields = {"evh": "sha256:" + "0" * 64, "sink": "drain", "cause": "deadline", "reason": None}
    vm = cluster.vms[0]
    for before in range(0, MAX_PREPARATIONS, 250):
        several = [{**fields, "evt": f"X-{before + n}", "state": "recovered"} for n in range(250)]
        cluster.tell(*(vm.record(PREPARATION, data, now=cluster.now) for data in several))
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "preparing")
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    with cluster.database.reading.connect() as connection:
        kept = connection.exec_driver_sql("SELECT event_id FROM preparation").scalars().all()
    assert len(kept) == MAX_PREPARATIONS
    assert "E-0" in kept
    assert "X-0" not in kept


def test_retention_keeps_what_holds_a_turn(cluster: TurnCluster) -> None:
    """A VM that has not recovered counts as away however long ago its event was: retention keeps
    the rows.
    """
    cluster.announce(0)
    cluster.approved("accepted", "posted")
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(86_400)
    assert cluster.step() == []
    with cluster.database.writing.begin() as connection:
        delete_before(connection, cluster.now.timestamp() - 3600, 100)
    cluster.announce(1)
    assert cluster.step() == []
    cluster.says(0, "recovered")
    assert cluster.step() == ["prepare db-1"]
    cluster.wait(86_400)
    with cluster.database.writing.begin() as connection:
        delete_before(connection, cluster.now.timestamp() - 3600, 100)
    with cluster.snapshots.open() as snapshot:
        assert snapshot.events.find_event("E-0") is None


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_vm_that_crashes_for_seconds_over_https_rests_again(
    database: Database, *, is_restarted: bool
) -> None:
    """A VM over HTTPS whose bridge is killed while it rests, and is back after seconds, was never
    silent: its new run begins the rest again, also for a console that was started meanwhile.
    """
    cluster = TurnCluster(database, rest=120)
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    cluster.step()
    cluster.end(0)
    cluster.now += timedelta(seconds=1)
    cluster.says(0, "recovered")
    cluster.poll()
    assert cluster.step() == []
    for seconds, session in ((100, "session-2"), (30, "session-2"), (80, "session-2")):
        cluster.now += timedelta(seconds=seconds)
        cluster.vms[0].session = session
        cluster.poll()
        if is_restarted:
            cluster.settings = replace(cluster.settings)
        assert cluster.step() == []
    cluster.now += timedelta(seconds=10)
    cluster.poll()
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()


def test_a_status_of_an_earlier_run_changes_nothing(cluster: TurnCluster) -> None:
    """A status of an earlier run of the bridge that comes late does not say whether the VM
    prepares, nor that a VM is here that was lost since.
    """

    def old_status(number: int) -> None:
        vm = cluster.vms[number]
        earlier = rfc3339(cluster.now - timedelta(hours=20))
        fields = {"commands": True, "prepares": False, "time": earlier, "session": "earlier"}
        cluster.status(vm, vm.status(**fields))

    cluster.wait(1)
    old_status(0)
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    cluster.lose(1)
    old_status(1)
    assert cluster.step() == []
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]
