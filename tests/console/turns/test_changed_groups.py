"""Turns while VMs change their group, or settings rename or remove groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.console.empty_database import ON_SQLITE
from support.console.turn_cluster import TurnCluster

from console.approvals.refusal_reasons import DecisionRefusedError
from console.config.groups import GroupSettings
from console.db.batches import vm_identities
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.snapshot import Snapshots
from console.db.turn_facts.turn_facts import TurnSettings
from console.turns.groups import Grouping

pytestmark = ON_SQLITE


def without_groups(cluster: TurnCluster) -> TurnCluster:
    """A console without groups on the same database."""
    cluster.settings = TurnSettings(grouping=Grouping(()), can_sign=True)
    cluster.snapshots = Snapshots(cluster.database, clock=cluster.snapshots.clock)
    cluster.decisions = cluster.decisions_of(Grouping(()))
    return cluster


def test_without_groups_open_turns_are_shown_and_end(cluster: TurnCluster) -> None:
    """If the next start has no groups, an event that waits may be approved at once, and what was
    released comes to its end.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    cluster.step()
    without_groups(cluster)
    assert (cluster.state(0), cluster.state(1)) == ("approving", "waiting")
    cluster.step()
    assert (cluster.state(0), cluster.state(1)) == ("approving", "over")
    assert cluster.is_due(1)
    cluster.end(0)
    cluster.step()
    cluster.says(0, "recovered")
    cluster.wait(1)
    cluster.step()
    assert cluster.state(0) == "over"


def test_without_groups_a_preparation_that_has_begun_is_not_passed_over(
    cluster: TurnCluster,
) -> None:
    """Without groups too, a person's approval is refused while the event's VM prepares for it."""
    cluster.announce(0)
    cluster.step()
    without_groups(cluster)
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.approve(0)
    assert refused.value.reason == "turn_begun"


@pytest.mark.parametrize("moves", [False, True])
def test_a_vm_that_changes_its_group_keeps_the_budget_of_both(
    database: Database, *, moves: bool
) -> None:
    """A VM that changes its group while it prepares is not approved while another member of the
    group in which it took its turn is away.
    """
    cluster = TurnCluster(database, match={"tag:cluster": ["*"]}, by=["tag:cluster"])
    for vm in cluster.vms:
        vm.tags = {"cluster": "a"}
    cluster.hear()
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    if moves:
        cluster.vms[0].tags = {"cluster": "b"}
    cluster.wait(5)
    cluster.lose(1)
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == []
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]
    cluster.decisions.stop()


def test_a_vm_rests_also_if_its_group_gets_another_name(database: Database) -> None:
    """If the settings give a group another name while its VM is away, the VM's rest is as long."""
    cluster = TurnCluster(database, rest=600)
    cluster.announce(0)
    cluster.approved("accepted", "posted")
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    cluster.step()
    rule = GroupSettings.model_validate({"name": "dbs", "approve": {}, "rest": 600})
    cluster.settings = replace(cluster.settings, grouping=Grouping([rule]))
    cluster.announce(1)
    cluster.wait(60)
    cluster.end(0)
    cluster.step()
    cluster.says(0, "recovered")
    cluster.wait(20)
    assert cluster.step() == []
    cluster.wait(570)
    assert cluster.step() == []
    cluster.wait(40)
    assert cluster.step() == ["prepare db-1"]
    cluster.decisions.stop()


@pytest.mark.parametrize("name", ["cluster", "Cluster"])
def test_a_tag_of_an_admin_counts_in_any_case(database: Database, name: str) -> None:
    """A VM does not leave its group by spelling the name of a tag that an admin gave it in another
    case.
    """
    cluster = TurnCluster(database, match={"tag:cluster": ["etcd"]})
    bound = {vm.vm_id: {"cluster": "etcd"} for vm in cluster.vms}
    with write_to(database) as (connection, change_number):
        vm_identities.replace_bound_tags(connection, bound, change_number)
    cluster.vms[0].tags = {name: "other", "team": "a"}
    cluster.wait(1)
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    with cluster.snapshots.open() as snapshot:
        (heard,) = snapshot.vms.vms_with_ids([cluster.vms[0].vm_id])
    assert heard.vm.tags == {"cluster": "etcd", "team": "a"}
    cluster.decisions.stop()


@pytest.mark.parametrize("given", ["etcd", "other"])
def test_a_tag_that_is_not_given_any_more_is_at_once_what_the_vm_says(
    database: Database, given: str
) -> None:
    """A VM counts by its own tag from the moment at which an admin takes back the one that replaced
    it, and does not leave its group until its next record.
    """
    cluster = TurnCluster(database, match={"tag:cluster": ["etcd"]})
    for vm in cluster.vms:
        vm.tags = {"cluster": "etcd"}
    vm_id = cluster.vms[0].vm_id
    give_tags(cluster, vm_id, {"Cluster": given})
    cluster.wait(1)
    cluster.announce(0)
    cluster.says(0, "prepared")
    give_tags(cluster, vm_id, {})
    cluster.announce(1)
    assert "prepare db-1" not in cluster.step()
    with cluster.snapshots.open() as snapshot:
        (heard,) = snapshot.vms.vms_with_ids([vm_id])
    assert heard.vm.tags == {"cluster": "etcd"}
    cluster.decisions.stop()


def give_tags(cluster: TurnCluster, vm_id: str, tags: dict[str, str]) -> None:
    """Have an admin give these tags to a VM in place of those from before."""
    with write_to(cluster.database) as (connection, change_number):
        vm_identities.replace_bound_tags(connection, {vm_id: tags}, change_number)
