"""Who of a group goes next: one after the other, and nobody waits for a VM that does not answer."""

from __future__ import annotations

from datetime import timedelta

from support.console.turn_cluster import START, TurnCluster

from console.db.connection.opening import Database
from wire.moment import rfc3339


def test_one_after_the_other(cluster: TurnCluster) -> None:
    """A VM prepares, is approved and comes back; then the next one gets its turn."""
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    assert (cluster.state(0), cluster.state(1)) == ("preparing", "waiting")
    cluster.says(0, "preparing")
    assert cluster.step() == []
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    assert cluster.state(0) == "approving"
    cluster.end(0)
    cluster.wait(1)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert cluster.step() == ["prepare db-1"]
    assert cluster.state(0) == "over"
    assert cluster.actions() == ["take_turn", "prepare", "approve", "take_turn", "prepare"]


def test_an_event_whose_vm_is_prepared_does_not_wait_for_one_that_waits_for_that_vm(
    cluster: TurnCluster,
) -> None:
    """A VM that has prepared at its own deadline is away until its event is over: that event is
    approved before an earlier one for which there is room only then.
    """
    minutes = (10, 40)
    for number, soon in enumerate(minutes):
        vm = cluster.vms[number]
        later = cluster.later(minutes=soon)
        cluster.tell(vm.event(f"E-{number}", now=cluster.now, not_before=later))
    cluster.says(1, "prepared")
    assert cluster.step() == ["approve db-1"]
    assert (cluster.state(0), cluster.state(1)) == ("waiting", "approving")
    cluster.end(1)
    cluster.wait(1)
    cluster.step()
    cluster.says(1, "recovered")
    cluster.wait(1)
    assert cluster.step() == ["prepare db-0"]


def test_an_approval_waits_while_another_member_has_crashed(cluster: TurnCluster) -> None:
    """An event whose VMs have all prepared is not approved while another member that has crashed
    fills the budget.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.lose(2)
    assert cluster.step() == []
    assert cluster.state(0) == "prepared"
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]


def test_the_group_does_not_wait_for_a_vm_that_does_not_answer(cluster: TurnCluster) -> None:
    """If a VM is heard and does not answer, because its trust file lacks the key, the next event of
    its group gets its turn.
    """
    for number, hours in ((0, 10), (1, 11)):
        soon = cluster.later(hours=hours)
        vm = cluster.vms[number]
        cluster.tell(vm.event(f"E-{number}", now=cluster.now, not_before=soon))
    sent = set()
    for _ in range(9):
        sent.update(cluster.step())
        cluster.wait(60)
    assert sent == {"prepare db-0", "prepare db-1"}
    assert (cluster.state(0), cluster.state(1)) == ("failed", "preparing")
    cluster.says(1, "prepared")
    assert cluster.step() == ["approve db-1"]


def test_the_group_does_not_wait_for_a_vm_that_was_retired(cluster: TurnCluster) -> None:
    """If a VM that crashed while it held its turn is retired, the group does not wait for it."""
    soon = cluster.later(hours=10)
    for vm in cluster.vms[:2]:
        record = vm.event("E-0", now=cluster.now, not_before=soon, resources=["db-0"])
        cluster.tell(record)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "preparing")
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET retired_at = {cluster.now.timestamp()} WHERE name = 'db-0'"
        )
    cluster.announce(1)
    assert cluster.step() == ["prepare db-1"]


def test_a_turn_is_not_tried_again_while_nothing_can_approve_it(database: Database) -> None:
    """If a VM that prepares nothing takes no commands any more, its turn is not tried again, and
    the next event gets its turn.
    """
    cluster = TurnCluster(database)
    cluster.hear_of([0], prepares=False)
    soon = cluster.later(hours=10)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=soon))
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    sent = []
    for _ in range(40):
        cluster.now += timedelta(seconds=30)
        cluster.hear_of([0], prepares=False, commands=False)
        cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms[1:]))
        sent += cluster.decide() + cluster.step()
    assert set(sent) == {"prepare db-1"}
    assert cluster.state(0) == "failed"


def test_what_has_failed_is_tried_again_after_what_waits(cluster: TurnCluster) -> None:
    """If two VMs refuse each command, the third goes before they are asked again; then each of the
    two is asked.
    """
    for number in range(3):
        soon = rfc3339(START + timedelta(hours=10, minutes=number))
        cluster.tell(cluster.vms[number].event(f"E-{number}", now=cluster.now, not_before=soon))
    sent: list[str] = []
    for _ in range(60):
        cluster.wait(30)
        for each in cluster.step():
            if each not in sent[-1:]:
                sent.append(each)
            if each in ("prepare db-0", "prepare db-1"):
                number = int(each[-1])
                cluster.answer("rejected", number=number, reason="unknown_key")
        if "prepare db-2" in sent and cluster.state(2) == "preparing":
            cluster.says(2, "prepared")
        if cluster.state(2) == "approving":
            cluster.deliver()
            cluster.end(2)
            cluster.says(2, "recovered")
    first = ["prepare db-0", "prepare db-1", "prepare db-2", "approve db-2"]
    assert sent[:6] == [*first, "prepare db-0", "prepare db-1"]


def test_a_vm_that_begins_again_and_again_holds_its_turn_for_five_minutes(
    database: Database,
) -> None:
    """A VM whose bridge stops and starts again and again, and never answers its command, holds its
    turn for five minutes.
    """
    cluster = TurnCluster(database)
    soon = cluster.later(hours=10)
    for number in (0, 1):
        vm = cluster.vms[number]
        cluster.tell(vm.event(f"E-{number}", now=cluster.now, not_before=soon))
    sent = set()
    for number in range(20):
        cluster.wait(30)
        if number % 4 == 3:
            cluster.vms[0].session = f"run-{number}"
            cluster.lose(0)
        sent |= set(cluster.step())
    assert "prepare db-1" in sent


def test_an_event_that_names_a_retired_vm_is_left_to_people(cluster: TurnCluster) -> None:
    """An event that names a retired VM is left to people: the VM is not a member any more, and
    cannot prepare.
    """
    soon = cluster.later(minutes=15)
    names = [cluster.vms[0].name, cluster.vms[1].name]
    for vm in cluster.vms[:2]:
        cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon, resources=names))
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql("UPDATE vm SET retired_at = 1 WHERE name = 'db-1'")
    assert cluster.step() == []
    known = cluster.known_event(0)
    assert known.turn is not None
    assert known.turn.reason == "the console does not know db-1"


def test_a_person_decides_again_if_a_vm_of_the_turn_is_retired(database: Database) -> None:
    """If a VM is retired while it prepares for an event that a person approved, nothing is approved
    before a person approves it by force.
    """
    cluster = TurnCluster(database, at_most=2, approve=None)
    soon = cluster.later(minutes=15)
    names = [cluster.vms[0].name, cluster.vms[1].name]
    for vm in cluster.vms[:2]:
        cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon, resources=names))
    cluster.approve(0)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    cluster.says(0, "prepared")
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET retired_at = {cluster.now.timestamp() + 1} WHERE name = 'db-1'"
        )
    assert cluster.step() == []
    turn = cluster.known_event(0).turn
    assert turn is not None
    assert (turn.state, turn.reason) == ("failed", "the console does not know db-1")
    cluster.approve(0, force=True)
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert (decision.state, decision.actor) == ("open", "alice")
    cluster.decisions.stop()
