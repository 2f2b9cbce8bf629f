"""No event is approved before each VM that it names has prepared for it as it is now."""

from __future__ import annotations

from datetime import timedelta

from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import EventOfTwo, TurnCluster

from console.db.connection.opening import Database
from wire.moment import rfc3339
from wire.record import PREPARATION

pytestmark = ON_SQLITE


def test_a_vm_that_has_not_said_whether_it_prepares_is_waited_for(cluster: TurnCluster) -> None:
    """An event waits for a VM of which only the event has come in, until the VM has said whether it
    prepares.
    """
    fresh = FakeVm(name="db-9")
    cluster.vms.append(fresh)
    soon = cluster.later(minutes=15)
    cluster.tell(fresh.event("E-9", now=cluster.now, not_before=soon))
    assert cluster.step() == []
    assert cluster.state(9) == "waiting"
    cluster.hear()
    assert cluster.step() == ["prepare db-9"]


def test_the_silence_of_a_vm_does_not_say_that_it_prepares_nothing(database: Database) -> None:
    """A VM that has not said whether it prepares is waited for, also once it is silent."""
    cluster = TurnCluster(database, at_most=2)
    soon = cluster.later(minutes=30)
    fields = {"not_before": soon, "now": cluster.now}
    fresh = FakeVm(name="db-9")
    cluster.tell(cluster.vms[0].event("E-0", **fields))
    assert cluster.step() == ["prepare db-0"]
    cluster.now += timedelta(seconds=5)
    fields = {"not_before": soon, "now": cluster.now, "resources": ["db-0", "db-9"]}
    changed = cluster.vms[0].event("E-0", transition="updated", **fields)
    cluster.tell(changed, fresh.event("E-0", **fields))
    cluster.step()
    cluster.says(0, "prepared")
    for _ in range(6):
        cluster.wait(40)
        assert cluster.step() == []
    turn = cluster.known_event(0).turn
    assert turn is not None
    assert turn.reason == "the console does not know yet whether db-9 can prepare"
    cluster.decisions.stop()


def test_while_a_turn_prepares_again_no_vm_is_asked_to_approve(pair: EventOfTwo) -> None:
    """If Azure moves the event and moves it back before the first VM has answered, no VM is asked
    to approve while the VMs prepare again.
    """
    cluster = pair.cluster
    pair.approve()
    pair.tell("updated", soon=cluster.later(minutes=40))
    cluster.step()
    pair.say(0, "preparing")
    pair.say(1, "preparing")
    pair.tell("updated")
    assert cluster.state(0) == "preparing"
    for _ in range(20):
        cluster.wait(1)
        assert cluster.decide() == []
        cluster.step()
    pair.say(0, "prepared")
    assert cluster.step() == []
    pair.say(1, "prepared")
    assert "approve" in cluster.step()[0]


def test_a_vm_that_loses_its_preparation_while_the_turn_waits_is_asked_again(
    pair: EventOfTwo,
) -> None:
    """If one document leaves an event out, the VM that has recovered is asked to prepare again, and
    the other one whether it is still prepared.
    """
    cluster = pair.cluster
    before = cluster.known_event(0).shown.report.fingerprint
    cluster.lose(4)
    pair.say(0, "prepared")
    pair.say(1, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    pair.tell("ended", numbers=(0,))
    pair.say(0, "recovered")
    pair.tell("scheduled", numbers=(0,))
    assert cluster.known_event(0).shown.report.fingerprint == before
    cluster.wait(11)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    assert cluster.state(0) == "preparing"


def test_a_vm_that_a_changed_event_left_out_is_prepared_again(pair: EventOfTwo) -> None:
    """A VM that a changed event left out, and names again before the VM has reported that it
    recovered, prepares again.
    """
    before = pair.cluster.known_event(0).shown.report.fingerprint
    pair.say(0, "prepared")
    pair.tell("updated", named=("db-1",))
    pair.tell("updated")
    assert pair.cluster.known_event(0).shown.report.fingerprint == before
    pair.say(1, "prepared")
    assert pair.cluster.step() == []
    assert pair.cluster.state(0) == "preparing"
    pair.say(0, "recovered")
    pair.say(0, "prepared")
    assert "approve" in pair.cluster.step()[0]


def test_a_vm_that_an_event_left_out_leaves_a_prepared_turn(pair: EventOfTwo) -> None:
    """A VM that a changed event does not name any more, also by its own report, leaves the turn
    once it has recovered, also if the turn is prepared and waits for room.
    """
    cluster = pair.cluster
    pair.say(0, "prepared")
    pair.say(1, "prepared")
    cluster.lose(2)
    assert cluster.step() == []
    pair.tell("updated", named=("db-1",))
    pair.say(1, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    cluster.says(0, "recovered")
    cluster.now += timedelta(seconds=70)  # the life of the commands
    cluster.hear_only([vm for vm in cluster.vms if vm.name != "db-2"])
    assert cluster.step() == ["approve db-1"]


def test_a_state_that_comes_back_is_prepared_again(cluster: TurnCluster) -> None:
    """If an event changes from A to B and back to A, its VM prepares for A again, because it has
    given that preparation up meanwhile.
    """
    first = cluster.later(minutes=15)
    cluster.announce(0)
    cluster.step()
    cluster.change(0)
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    cluster.change(0, not_before=first)
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.state(0) == "preparing"


def test_a_preparation_that_a_change_ended_is_no_failure(cluster: TurnCluster) -> None:
    """A preparation that a change of the event ended is no failure once the event is back in the
    former state.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "preparing")
    before = cluster.known_event(0).shown.report
    cluster.change(0)
    data = {"evt": "E-0", "evh": before.fingerprint, "sink": "drain", "cause": "deadline"}
    more = {"reason": "event_changed", "state": "failed"}
    cluster.tell(cluster.vms[0].record(PREPARATION, data | more, now=cluster.now))
    cluster.step()
    at = before.event.not_before
    assert at is not None
    cluster.change(0, not_before=rfc3339(at))
    assert cluster.known_event(0).shown.report.fingerprint == before.fingerprint
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.state(0) == "preparing"


def test_what_was_prepared_in_an_earlier_stay_of_an_event_counts_no_more_if_it_comes_late(
    cluster: TurnCluster,
) -> None:
    """A preparation for an earlier stay of the event does not count if its record comes late over a
    slower sink, whether or not the VM has recovered since.
    """
    vm = cluster.vms[0]
    soon = cluster.later(hours=1)
    cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-0"]
    told = {"evt": "E-0", "evh": cluster.known_event(0).shown.report.fingerprint, "sink": "drain"}
    told |= {"cause": "deadline", "reason": None}
    late = [
        vm.record(PREPARATION, told | {"state": state}, now=cluster.now)
        for state in ("preparing", "prepared")
    ]
    cluster.answer("accepted")
    cluster.answer("confirmed")
    cluster.now += timedelta(seconds=5)
    cluster.tell(vm.event("E-0", transition="ended", now=cluster.now))
    cluster.step()
    cluster.now += timedelta(seconds=5)
    recovered = vm.record(PREPARATION, told | {"state": "recovered"}, now=cluster.now)
    cluster.wait(60)
    cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon))
    assert "prepare db-0" in cluster.step()
    cluster.tell(*late)
    cluster.wait(1)
    assert cluster.step() == []
    assert cluster.state(0) == "preparing"
    cluster.tell(recovered)
    assert cluster.step() == []
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]


def test_what_a_vm_prepared_counts_once_its_scope_is_known(database: Database) -> None:
    """If a bridge learns its subscription after it has prepared, its event is approved, and the
    next one does not wait for a turn of the former scope.
    """
    cluster = TurnCluster(database)
    vm = cluster.vms[0] = FakeVm(name="db-3", subscription=None, group=None)
    cluster.hear()
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-3"]
    cluster.says(0, "prepared")
    vm.subscription, vm.group = cluster.vms[1].subscription, cluster.vms[1].group
    cluster.wait(1)
    sent = cluster.step()
    for _ in range(12):
        cluster.wait(10)
        sent += cluster.step()
    assert sent == ["approve db-3"]


def test_a_vm_that_joins_a_turn_and_is_not_heard_delays_its_approval(database: Database) -> None:
    """A group approves no event that came to name a VM that the console does not hear, as it takes
    no turn for an event that was announced so.
    """
    cluster = TurnCluster(database, at_most=2)
    cluster.hear_of([1], prepares=False)
    heard = [cluster.vms[0], cluster.vms[2]]
    for _ in range(5):
        cluster.now += timedelta(seconds=50)
        cluster.hear_only(heard)
    soon = cluster.later(minutes=30)
    event = {"not_before": soon, "now": cluster.now}
    cluster.tell(cluster.vms[0].event("E-0", **event))
    assert cluster.step() == ["prepare db-0"]
    both = {"resources": ("db-0", "db-1"), "transition": "updated"}
    cluster.tell(cluster.vms[0].event("E-0", **event, **both))
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    for _ in range(3):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=11)
        cluster.hear_only(heard)
    with cluster.snapshots.open() as snapshot:
        known = snapshot.events.find_event("E-0")
    assert known is not None
    assert known.turn is not None
    assert known.turn.reason == "the console does not hear db-1"
    cluster.hear_of([1], prepares=False)
    cluster.tell(cluster.vms[1].event("E-0", **event, resources=("db-0", "db-1")))
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()
