"""Past events, read for a replay: what a console has decided about them meanwhile counts as little
as what their VMs do today.
"""

from datetime import timedelta
from typing import Any

from support.console.turn_cluster import TurnCluster

from console.config.groups import GroupSettings
from console.db.connection.opening import Database
from console.db.turn_facts.past_events import read_past
from console.turns.groups import Grouping
from console.turns.replay import ReplayOutcome, replay


def replayed(cluster: TurnCluster, **more: Any) -> dict[str, ReplayOutcome]:
    """Return what would have become of the cluster's past events."""
    grouping = Grouping([GroupSettings.model_validate({"name": "db", "approve": {}})])
    with cluster.snapshots.open() as snapshot:
        groups, vms, past = read_past(snapshot, grouping, since=0.0, **more)
    outcomes = replay(groups, vms, past)
    return {each.past.facts.event_id: each for each in outcomes}


def lived_through(database: Database) -> TurnCluster:
    """Return a cluster whose three VMs had an event each: all were approved by their group, one
    after the other, and each lasted for 20 s.
    """
    cluster = TurnCluster(database)
    for number in range(3):
        cluster.announce(number)
    for number, vm in enumerate(cluster.vms):
        assert f"prepare {vm.name}" in cluster.step()
        cluster.says(number, "prepared")
        cluster.answer("confirmed", number=number)
        assert f"approve {vm.name}" in cluster.step()
        cluster.deliver()
        cluster.wait(1)
        cluster.tell(
            vm.event(f"E-{number}", transition="started", now=cluster.now, status="Started")
        )
        cluster.wait(20)
        cluster.end(number)
        cluster.says(number, "recovered")
        cluster.wait(1)
    cluster.decisions.stop()
    return cluster


def test_what_the_group_has_approved_is_approved_in_the_replay(database: Database) -> None:
    """Each event waits for those before it for as long as they lasted, although all of them have
    been approved and their VMs are silent by now.
    """
    cluster = lived_through(database)
    cluster.now += timedelta(hours=1)
    outcomes = replayed(cluster)
    assert {key: round(each.waited) for key, each in outcomes.items()} == {
        "E-0": 0,
        "E-1": 20,
        "E-2": 40,
    }


def test_two_persons_are_needed_in_the_replay_too(database: Database) -> None:
    """An event for which two persons are needed is not approved by its group."""
    outcomes = replayed(lived_through(database), four_eyes=1)
    assert {each.approved_at for each in outcomes.values()} == {None}
