"""Persons who approve an event of a group, with and without force, or leave it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.console.records import FakeVm
from support.console.turn_cluster import BOB, EventOfTwo, TurnCluster

from console.approvals.refusal_reasons import DecisionRefusedError
from console.db.connection.opening import Database
from console.fleet.decisions import decision_status


def test_a_person_does_not_approve_what_failed_to_prepare(by_people: TurnCluster) -> None:
    """While a VM has given up its preparation, no decision on its event is due, and without force
    nothing is sent.
    """
    by_people.announce(0)
    by_people.step()
    assert by_people.is_due(0)
    by_people.says(0, "failed")
    by_people.step()
    assert not by_people.is_due(0)
    with pytest.raises(DecisionRefusedError) as refused:
        by_people.approve(0)
    assert refused.value.reason == "not_prepared"
    assert "approve" not in by_people.actions()
    by_people.approve(0, force=True)
    assert "approve" in by_people.actions()


def test_a_person_does_not_approve_what_no_vm_has_time_to_prepare(by_people: TurnCluster) -> None:
    """Shortly before notBefore a person's approval is refused, because it would be sent before the
    VM has prepared.
    """
    by_people.announce(0)
    by_people.step()
    by_people.wait(14 * 60 + 40)
    by_people.step()
    assert not by_people.is_due(0)
    with pytest.raises(DecisionRefusedError) as refused:
        by_people.approve(0)
    assert refused.value.reason == "not_prepared"
    assert "approve" not in by_people.actions()


def test_a_person_approves_nothing_before_each_vm_has_said_whether_it_prepares(
    database: Database,
) -> None:
    """A person's approval is refused until each named VM has said, in a heartbeat, whether it
    prepares.
    """
    cluster = TurnCluster(database, at_most=2, approve=None)
    fresh = FakeVm(name="db-9")
    both = [cluster.vms[0].name, fresh.name]
    soon = cluster.later(minutes=15)
    for vm in (cluster.vms[0], fresh):
        cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon, resources=both))
    cluster.vms.append(fresh)
    cluster.approve(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    assert cluster.step() == []
    cluster.hear()
    assert cluster.step() == ["prepare db-9"]


def test_nothing_is_due_while_a_named_vm_that_prepares_is_not_heard(by_people: TurnCluster) -> None:
    """No decision is due while a named VM that prepares is not heard: it cannot prepare, although
    its group has room.
    """
    one, other, _ = by_people.vms
    soon = by_people.later(minutes=15)
    names = [one.name, other.name]
    for vm in (one, other):
        by_people.tell(vm.event("E-0", now=by_people.now, not_before=soon, resources=names))
    by_people.step()
    assert by_people.is_due(0)
    by_people.lose(1)
    assert not by_people.is_due(0)
    by_people.step()
    assert not by_people.is_due(0)
    with pytest.raises(DecisionRefusedError) as refused:
        by_people.approve(0)
    assert refused.value.reason == "cannot_prepare"


def test_nothing_is_due_before_it_is_known_whether_there_is_room(by_people: TurnCluster) -> None:
    """No decision is due on an event that has just come in: it may have to wait for its group."""
    for number in range(3):
        by_people.announce(number)
    assert not any(by_people.is_due(number) for number in range(3))
    by_people.step()
    assert all(by_people.is_due(number) for number in range(3))


def test_a_persons_approval_is_for_the_state_that_the_person_saw(by_people: TurnCluster) -> None:
    """If the event changes while its VM prepares, it waits for another approval, which continues
    the turn.
    """
    by_people.announce(0)
    by_people.step()
    by_people.approve(0)
    by_people.step()
    by_people.change(0)
    by_people.wait(11)
    by_people.step()
    assert by_people.state(0) == "failed"
    by_people.says(0, "prepared")
    assert by_people.step() == []
    assert by_people.is_due(0)
    by_people.approve(0)
    assert by_people.actions()[-1] == "approve"


def test_a_person_takes_an_approval_back(by_people: TurnCluster) -> None:
    """A person who leaves an event while its VM prepares ends the approval; a later approval ends
    the leave.
    """
    by_people.announce(0)
    by_people.step()
    by_people.approve(0)
    by_people.step()
    by_people.leave(0)
    by_people.says(0, "prepared")
    assert by_people.step() == []
    assert by_people.state(0) == "failed"
    by_people.approve(0)
    assert by_people.actions()[-1] == "approve"


def test_a_person_leaves_an_event_whose_turn_has_begun(cluster: TurnCluster) -> None:
    """If a person leaves an event whose turn has begun, its group does not approve it any more."""
    cluster.announce(0)
    cluster.step()
    cluster.leave(0)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"


def test_an_event_that_a_person_left_is_left_still_if_it_is_back_as_it_was(
    cluster: TurnCluster,
) -> None:
    """A document may leave an event out for a moment: its group does not approve what a person has
    left, and the page says so; once the event has changed, its group does.
    """
    event = {"now": cluster.now, "not_before": cluster.later(minutes=15)}
    cluster.tell(cluster.vms[0].event("E-0", **event))
    cluster.leave(0)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.decide()
    cluster.wait(2)
    cluster.tell(cluster.vms[0].event("E-0", **{**event, "now": cluster.now}))
    assert cluster.step() == []
    known = cluster.known_event(0)
    fingerprint = known.shown.report.fingerprint
    status = decision_status("scheduled", fingerprint, (), known.decided, can_be_asked=True)
    assert status.state == "left"
    cluster.change(0)
    assert cluster.step() == ["prepare db-0"]


def test_one_of_two_persons_approves_nothing_once_the_others_approval_is_over(
    database: Database,
) -> None:
    """If a change of the event ended the first person's approval, the second person's alone
    approves nothing, even if no console looked at turns meanwhile.
    """
    cluster = TurnCluster(database, approve=None)
    cluster.decisions = cluster.decisions_of(cluster.settings.grouping, four_eyes=1)
    cluster.settings = replace(cluster.settings, four_eyes=1)
    first = cluster.later(minutes=15)
    cluster.announce(0)
    cluster.approve(0)
    cluster.approve(0, person=BOB)
    assert cluster.step() == ["prepare db-0"]
    cluster.change(0)
    cluster.decide()
    cluster.change(0, not_before=first)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    turn = cluster.known_event(0).turn
    assert turn is not None
    assert (turn.state, turn.reason) == (
        "failed",
        "two persons approve an event of so many VMs",
    )
    cluster.approve(0)
    cluster.approve(0, person=BOB)
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert (decision.actor, decision.second_actor) == ("alice", "bob")
    cluster.decisions.stop()


@pytest.mark.parametrize("name", ["bob", "BOB "])
@pytest.mark.parametrize("ends", ["changes", "vanishes", "is left"])
def test_one_person_is_not_both_of_two(database: Database, ends: str, name: str) -> None:
    """If the second person approves again after the approval of the first has ended, that is a new
    first approval: the turn that this person took approves nothing, until another one approves.
    """
    cluster = TurnCluster(database, approve=None)
    cluster.decisions = cluster.decisions_of(cluster.settings.grouping, four_eyes=1)
    cluster.settings = replace(cluster.settings, four_eyes=1)
    first = cluster.later(minutes=15)
    cluster.announce(0)
    cluster.approve(0)
    cluster.approve(0, person=BOB)
    assert cluster.step() == ["prepare db-0"]
    if ends == "changes":
        cluster.change(0)
        cluster.decide()
        cluster.change(0, not_before=first)
    elif ends == "vanishes":
        cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
        cluster.decide()
        cluster.wait(2)
        cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=first))
    else:
        cluster.leave(0)
    cluster.approve(0, person=replace(BOB, name=name))
    cluster.says(0, "prepared")
    assert "approve db-0" not in cluster.step()
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert (decision.state, decision.second_actor) == ("second", None)
    cluster.approve(0)
    cluster.step()
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert (decision.actor, decision.second_actor) == (name, "alice")
    cluster.decisions.stop()


def test_force_is_for_the_vms_that_the_event_named(database: Database) -> None:
    """If an event that a person forced names further VMs later, these are not sent away."""
    cluster = TurnCluster(database, approve=None)
    cluster.announce(1)
    cluster.step()
    cluster.approve(1)
    cluster.step()
    cluster.announce(0)
    cluster.step()
    cluster.approve(0, force=True)
    assert cluster.step() == ["prepare db-0"]
    cluster.change(0, resources=[vm.name for vm in cluster.vms])
    cluster.wait(11)
    assert cluster.step() == []  # nor is db-1 asked again: it would be gone beside db-0
    assert cluster.state(0) == "failed"
    cluster.decisions.stop()


def test_force_sends_an_approval_as_soon_as_the_one_before_has_ended(cluster: TurnCluster) -> None:
    """A person's approval by force is sent once the approval before it has ended, even before the
    step that ends the turn.
    """
    cluster.announce(0)
    jti = cluster.approved()
    refused = cluster.vms[0].receipt(
        "E-0", "failed", jti=jti, actor="group:db", reason="imds_refused", now=cluster.now
    )
    cluster.tell(refused)
    cluster.decide()
    assert cluster.state(0) == "approving"
    cluster.approve(0, force=True)
    cluster.deliver()
    command = cluster.known_event(0).decided.commands[-1]
    assert (command.act, command.jti != jti) == ("approve", True)


def test_a_vm_that_is_approved_by_force_after_it_was_free_is_away_again(
    database: Database,
) -> None:
    """A VM whose turn failed because it did not answer counts as away again once a person approves
    its event by force.
    """
    cluster = TurnCluster(database, approve=None)
    cluster.announce(0)
    cluster.step()
    cluster.approve(0)
    for _ in range(9):
        cluster.step()
        cluster.wait(60)
    assert cluster.state(0) == "failed"
    cluster.approve(0, force=True)
    assert cluster.state(0) == "approving"
    cluster.announce(1)
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.approve(1)
    assert refused.value.reason == "not_its_turn"


def test_a_vm_whose_program_gave_up_is_asked_last(pair: EventOfTwo) -> None:
    """If a person approves by force, a VM that is prepared is asked, not the one that gave up and
    was heard last.
    """
    cluster = pair.cluster
    pair.say(0, "prepared")
    pair.say(1, "failed")
    assert cluster.step() == []
    cluster.now += timedelta(seconds=5)
    cluster.tell(cluster.vms[1].heartbeat(now=cluster.now, prepares=True))
    cluster.approve(0, force=True)
    (asked,) = cluster.known_event(0).decided.commands[-1:]
    assert asked.vm_id == cluster.vms[0].vm_id


def test_groups_that_are_not_the_latest_need_force(by_people: TurnCluster) -> None:
    """A console with other groups than the one that was started last knows no budget of these."""
    by_people.announce(0)
    by_people.step()
    assert by_people.is_due(0)
    by_people.start_another_console()
    assert not by_people.is_due(0)
    with pytest.raises(DecisionRefusedError) as refused:
        by_people.approve(0)
    assert refused.value.reason == "other_groups"
    by_people.start_another_console(by_people.settings.grouping.hash)
    by_people.approve(0)


def test_a_person_may_force_what_other_groups_hold_up(by_people: TurnCluster) -> None:
    """Nobody has to wait until a console is started again."""
    by_people.announce(0)
    by_people.step()
    by_people.start_another_console()
    by_people.approve(0, force=True)
    assert "force_turn" in by_people.actions()
