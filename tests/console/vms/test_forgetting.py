"""An admin removes what a VM has sent: that makes no room in its group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event
from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import TurnCluster

from console.db.connection.opening import Database
from console.vms.retirement import ForgottenVms, forget, retire

pytestmark = ON_SQLITE


@pytest.fixture
def cluster(database: Database) -> Iterator[TurnCluster]:
    """Three VMs of which one may be away; the group of the first two approves by itself."""
    made = TurnCluster(database, match={"name": ["db-0", "db-1"]})
    yield made
    made.decisions.stop()


def forgotten(cluster: TurnCluster, number: int = 0) -> ForgottenVms:
    """Forget a VM."""
    vm_ids = [cluster.vms[number].vm_id]
    return forget(cluster.snapshots, vm_ids, actor="adam", reason="its secrets were stolen")


def why_kept(cluster: TurnCluster, number: int = 0) -> str:
    """Try to forget a VM that is away; return why it is kept, after checking that it is."""
    vm_id = cluster.vms[number].vm_id
    done = forgotten(cluster, number)
    assert done.removed == {}
    with cluster.snapshots.open() as snapshot:
        assert snapshot.vms.find_vm(vm_id) is not None
    assert "vm_forgotten" not in cluster.actions()
    return done.kept[vm_id]


def test_a_vm_that_holds_a_turn_is_not_forgotten(cluster: TurnCluster) -> None:
    """A VM that holds a turn is kept until the turn is over."""
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    assert "it holds the turn of event E-0" in why_kept(cluster)
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    assert "it holds the turn of event E-0" in why_kept(cluster)
    assert cluster.step() == []
    cluster.end(0)
    cluster.wait(1)
    cluster.says(0, "recovered")
    cluster.wait(120)
    assert cluster.step() == ["prepare db-1"]
    assert [*forgotten(cluster).removed] == [cluster.vms[0].vm_id]


def test_a_vm_of_no_group_that_holds_a_turn_is_not_forgotten(cluster: TurnCluster) -> None:
    """An event may name a VM of no group beside a member: that VM is kept too while it holds the
    turn, because the event may be known by its report alone.
    """
    names = ["db-0", "db-2"]
    soon = cluster.later(minutes=15)
    for vm in (cluster.vms[0], cluster.vms[2]):
        cluster.tell(vm.event("E-0", now=cluster.now, resources=names, not_before=soon))
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-2"]
    assert "it holds the turn of event E-0" in why_kept(cluster, 2)


def test_a_vm_that_has_prepared_by_itself_is_not_forgotten(cluster: TurnCluster) -> None:
    """A VM that has prepared at its own deadline is kept until it has recovered. Another member's
    event goes on waiting for it.
    """
    cluster.announce(0)
    cluster.says(0, "prepared")
    assert "it is away in group db: has prepared" in why_kept(cluster)
    cluster.end(0)
    assert "it is away in group db: has prepared" in why_kept(cluster)
    cluster.announce(1)
    assert cluster.step() == []
    cluster.wait(1)
    cluster.says(0, "recovered")
    assert cluster.step() == ["prepare db-1"]
    assert [*forgotten(cluster).removed] == [cluster.vms[0].vm_id]


def test_a_vm_that_takes_its_turn_meanwhile_is_not_forgotten(cluster: TurnCluster) -> None:
    """A VM that takes a turn between the transactions in which it is forgotten is kept."""
    cluster.announce(0)
    given: list[list[str]] = []

    def give_turn(*_: object) -> None:
        if not given:  # after the first transaction
            given.append([])
            given[0] = cluster.step()

    event.listen(cluster.database.writing.pool, "checkin", give_turn)
    done = forgotten(cluster)
    assert given == [["prepare db-0"]]
    assert (done.removed, [*done.kept]) == ({}, [cluster.vms[0].vm_id])


def test_a_vm_that_is_down_is_not_forgotten(cluster: TurnCluster) -> None:
    """A member whose event has started, or that is not heard, is kept."""
    cluster.announce(0)
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    assert "its event has started" in why_kept(cluster)
    cluster.lose(1)
    assert "is not heard" in why_kept(cluster, 1)


def test_a_retired_vm_is_forgotten(cluster: TurnCluster) -> None:
    """A VM that is gone for good, and was away when that happened, is retired first, and then
    forgotten.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.lose(0)
    vm_id = cluster.vms[0].vm_id
    assert "it holds the turn of event E-0" in why_kept(cluster)
    now = cluster.now.timestamp()
    assert retire(cluster.database, [vm_id], actor="adam", reason="deleted", now=now) == [vm_id]
    assert [*forgotten(cluster).removed] == [vm_id]


def test_a_vm_for_which_nobody_waits_is_forgotten(cluster: TurnCluster) -> None:
    """A VM of no group is forgotten although it has prepared and is not heard, and so is a member
    that is here; an unknown one is left out.
    """
    cluster.announce(2)
    cluster.says(2, "prepared")
    cluster.lose(2)
    assert [*forgotten(cluster, 2).removed] == [cluster.vms[2].vm_id]
    assert [*forgotten(cluster, 1).removed] == [cluster.vms[1].vm_id]
    other = FakeVm(name="db-9")
    done = forget(cluster.snapshots, [other.vm_id, "x"], actor="adam", reason="unknown")
    assert done == ForgottenVms(removed={}, kept={})
