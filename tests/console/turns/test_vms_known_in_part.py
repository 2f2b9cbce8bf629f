"""VMs of which the console has only a state document: it has no tags, no zone and no location."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import TurnCluster

from console.db.connection.opening import Database
from console.records.parse import parse_state

pytestmark = ON_SQLITE


@pytest.fixture
def cluster(database: Database) -> Iterator[TurnCluster]:
    """Three VMs in the group of their tag, of which one may be away."""
    made = TurnCluster(database, match={"tag:role": ["db"]})
    for vm in made.vms:
        vm.tags["role"] = "db"
    made.hear()
    yield made
    made.decisions.stop()


def hear_state_of(cluster: TurnCluster, vm: FakeVm) -> None:
    """Have the broker hand out the retained state of a VM that has prepared for an event."""
    record = vm.event("E-9", now=cluster.now, not_before=cluster.later(minutes=9))
    state = json.loads(vm.state(record, now=cluster.now))
    state["events"][0]["preparation"] = "prepared"
    at = cluster.now.timestamp()
    document = json.dumps(state).encode()
    cluster.store(
        [parse_state(document, source="broker", received_at=at, vm_id=vm.vm_id, site="default")]
    )


@pytest.mark.parametrize(
    ("tags", "sent"),
    [({"role": "db"}, []), ({"role": "web"}, ["prepare db-1"])],
    ids=["of the group", "of another"],
)
def test_a_vm_that_is_away_counts_in_every_group_that_it_may_belong_to(
    cluster: TurnCluster, tags: dict[str, str], sent: list[str]
) -> None:
    """A prepared VM whose tags are not known yet counts as away in the groups by tags; once a
    record has described it, only in its own.
    """
    other = FakeVm(name="db-9", tags=tags)
    hear_state_of(cluster, other)
    cluster.announce(1)
    assert cluster.step() == []
    assert cluster.state(1) == "waiting"
    cluster.wait(60)
    cluster.tell(other.heartbeat(now=cluster.now, prepares=True))
    assert cluster.step() == sent


def test_an_event_of_a_vm_whose_groups_are_not_known_waits(cluster: TurnCluster) -> None:
    """An event that names a VM whose tags are not known is approved by no group, and says why."""
    other = FakeVm(name="db-9", tags={"role": "db"})
    cluster.status(other, other.status(commands=True, prepares=True))
    event = cluster.vms[1].event(
        "E-1",
        resources=["db-1", "db-9"],
        now=cluster.now,
        not_before=cluster.later(minutes=15),
    )
    cluster.tell(event)
    hear_state_of(cluster, other)
    assert cluster.step() == []
    turn = cluster.known_event(1).turn
    assert turn is not None
    assert turn.reason == "the console does not know yet which groups db-9 belongs to"
