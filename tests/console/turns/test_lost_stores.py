"""Turns of VMs that were made again, or whose store was damaged or put back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import START, EventOfTwo, TurnCluster

from console.approvals.refusal_reasons import DecisionRefusedError
from wire.moment import rfc3339
from wire.record import PREPARATION

pytestmark = ON_SQLITE


def with_new_store(
    cluster: TurnCluster, soon: str, *states: str, behind: timedelta = timedelta()
) -> None:
    """Let the first VM confirm that it approves its event, and be made again a second later, with
    its clock `behind`. The second one waits.
    """
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    later = cluster.later(hours=11)
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    cluster.approved("accepted", *states)
    cluster.now += timedelta(seconds=1)
    new = cluster.vms[0] = FakeVm(name="db-0", stream="another", session="another")
    its = cluster.now - behind
    if behind:
        cluster.tell(new.started(now=its))
    cluster.tell(new.event("E-0", now=its, not_before=soon))


def test_what_a_store_accepted_that_is_lost_fails_after_some_time(cluster: TurnCluster) -> None:
    """An approval that a lost store had accepted fails after some time. Other VMs get their turns
    before Azure starts the event, and the VM is asked again after them.
    """
    with_new_store(cluster, cluster.later(hours=10))
    sent = []
    for _ in range(14):
        cluster.wait(60)
        sent += cluster.decide() + cluster.step()
    assert (sent, cluster.state(0)) == ([], "approving")
    for _ in range(5):
        cluster.wait(60)
        sent += cluster.decide() + cluster.step()
    assert "prepare db-1" in sent or "prepare db-0" in sent
    assert cluster.known_event(0).decided.decision is not None


@pytest.mark.parametrize("is_ended", [False, True], ids=["", "ended by force"])
def test_a_person_approves_again_what_a_lost_store_had_accepted(
    cluster: TurnCluster, *, is_ended: bool
) -> None:
    """A person can approve the event again as soon as the approval of the lost store has failed,
    also after the end of the turn.
    """
    with_new_store(cluster, cluster.later(hours=10))
    cluster.wait(100)
    if is_ended:
        cluster.end_turn(0, force=True)
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.approve(0, force=True)
    assert refused.value.reason == "under_way"
    cluster.wait(900)
    cluster.decide()
    cluster.step()
    cluster.approve(0, force=True)
    assert "force_turn" in cluster.actions()


@pytest.mark.parametrize("behind", [timedelta(), timedelta(hours=2)], ids=["", "clock behind"])
def test_a_lost_store_may_have_told_azure(cluster: TurnCluster, behind: timedelta) -> None:
    """A VM that is made again may have told Azure to start its event, so no other VM is asked for
    some minutes, and the former approval is still shown.
    """
    soon = cluster.later(hours=10)
    with_new_store(cluster, soon, "posted", behind=behind)
    for _ in range(14):
        cluster.wait(60)
        assert cluster.decide() + cluster.step() == []
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    for _ in range(10):
        cluster.wait(60)
        assert cluster.decide() + cluster.step() == []
    assert cluster.state(0) == "away"
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert decision.outcome == "confirmed"


def test_a_store_that_is_new_before_the_approval_loses_nothing(cluster: TurnCluster) -> None:
    """If a VM is made again and prepares again before it accepts the approval, that approval
    counts.
    """
    soon = cluster.later(hours=10)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.wait(5)
    new = cluster.vms[0] = FakeVm(name="db-0", stream="another", session="another")
    cluster.tell(new.event("E-0", now=cluster.now, not_before=soon))
    cluster.wait(130)
    cluster.approved("accepted")
    for _ in range(20):
        cluster.wait(60)
        assert cluster.decide() + cluster.step() == []
    assert cluster.state(0) == "approving"


@pytest.mark.parametrize("is_late", [False, True], ids=["clock behind", "old record late"])
def test_a_vm_with_a_new_store_has_prepared_nothing(pair: EventOfTwo, *, is_late: bool) -> None:
    """What a VM had prepared does not count after it got a new store, whatever its clock says, and
    even if a record of the old store comes in later.
    """
    cluster = pair.cluster
    old = cluster.vms[1]
    cluster.lose(4)
    pair.say(0, "prepared")
    pair.say(1, "preparing" if is_late else "prepared")
    fingerprint = cluster.known_event(0).shown.report.fingerprint
    data = {"evt": "E-0", "evh": fingerprint, "sink": "drain", "cause": "deadline", "reason": None}
    late = old.record(PREPARATION, data | {"state": "prepared"}, now=cluster.now)
    cluster.now += timedelta(seconds=11)
    behind = cluster.now - timedelta(seconds=0 if is_late else 180)
    new = cluster.vms[1] = FakeVm(name="db-1", stream="another")
    event = new.event("E-0", resources=["db-0", "db-1"], not_before=pair.soon, now=behind)
    cluster.tell(new.started(now=behind), event, new.heartbeat(now=behind, prepares=True))
    if is_late:
        cluster.tell(late)
    cluster.step()
    cluster.hear()
    assert cluster.step() == ["prepare db-1"]
    assert cluster.state(0) == "preparing"


def test_a_vm_whose_store_was_put_back_is_asked_to_prepare_again(pair: EventOfTwo) -> None:
    """What a VM had prepared does not count after its store was put back to a copy from before:
    the event waits until it has prepared again.
    """
    cluster = pair.cluster
    vm = cluster.vms[1]
    for _ in range(3):
        cluster.tell(vm.heartbeat(now=cluster.now, prepares=True))
    copy = replace(vm, sequence=vm.sequence - 5, revisions={}, session="another")
    pair.say(1, "prepared")
    cluster.now += timedelta(seconds=30)
    cluster.vms[1] = copy
    cluster.tell(copy.started(now=cluster.now))
    pair.tell("scheduled", numbers=(1,))
    pair.say(0, "prepared")
    cluster.hear()
    assert cluster.step() == ["prepare db-1"]
    pair.say(1, "preparing")
    assert cluster.step() == []
    pair.say(1, "prepared")
    assert len(cluster.step()) == 1
    assert cluster.state(0) == "approving"


def test_a_vm_whose_store_was_put_back_to_when_it_was_prepared_is_away(
    cluster: TurnCluster,
) -> None:
    """A VM has recovered, and then its store is put back to a copy that was made while it was
    prepared: it is away until it has recovered once more.
    """
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "preparing")
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    copy = replace(cluster.vms[0], revisions=dict(cluster.vms[0].revisions), session="another")
    cluster.now += timedelta(seconds=5)
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.now += timedelta(minutes=20)
    cluster.vms[0] = copy
    cluster.tell(copy.started(now=cluster.now))
    cluster.hear()
    cluster.announce(1)
    assert "prepare db-1" not in cluster.step()
    cluster.now += timedelta(seconds=5)
    cluster.says(0, "recovered")
    assert "prepare db-1" in cluster.step()


def test_a_store_that_was_put_back_to_before_its_event_has_nothing_to_recover_from(
    cluster: TurnCluster,
) -> None:
    """A VM has recovered, and then its store is put back to a copy from before its event: it is
    here, because it will report no recovery.
    """
    copy = replace(cluster.vms[0], revisions={}, session="another")
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "preparing")
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    cluster.step()
    cluster.now += timedelta(seconds=5)
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.step()
    cluster.now += timedelta(minutes=20)
    cluster.vms[0] = copy
    cluster.tell(copy.started(now=cluster.now))
    cluster.hear()
    cluster.announce(1)
    assert "prepare db-1" in cluster.step()


def damaged(cluster: TurnCluster, number: int) -> None:
    """Damage the store of a VM: its bridge begins a new one, and records that."""
    old = cluster.vms[number]
    new = FakeVm(name=old.name, vm_id=old.vm_id, stream="another", session="another")
    cluster.vms[number] = new
    cluster.tell(new.store_reset(now=cluster.now), new.heartbeat(now=cluster.now, prepares=True))


@pytest.mark.parametrize("is_told", [True, False], ids=["is told of its end", "is told nothing"])
def test_a_vm_whose_store_was_damaged_keeps_its_turn(
    cluster: TurnCluster, *, is_told: bool
) -> None:
    """A VM whose bridge lost its store while it was away holds its turn until its program has
    recovered; if it is never told of the end, until a person ends the turn.
    """
    cluster.announce(0)
    later = cluster.later(hours=10)
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    cluster.step()
    cluster.answer("accepted")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    cluster.step()
    cluster.now += timedelta(seconds=30)
    damaged(cluster, 0)
    if is_told:
        cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
        cluster.wait(5)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(60)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    if is_told:
        cluster.says(0, "recovered")
    else:
        cluster.wait(3600)
        cluster.step()
        assert cluster.state(0) == "stuck"
        cluster.end_turn(0)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_whose_store_was_damaged_prepares_again(cluster: TurnCluster) -> None:
    """A prepared VM whose bridge loses its store is asked to prepare again before its event is
    approved. Meanwhile it counts as away, also without a turn.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("accepted")
    cluster.now += timedelta(seconds=1)
    cluster.says(0, "prepared")
    cluster.lose(2)
    cluster.step()
    assert cluster.state(0) == "prepared"
    cluster.now += timedelta(seconds=30)
    damaged(cluster, 0)
    soon = rfc3339(START + timedelta(minutes=15))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    assert cluster.state(0) == "preparing"
    cluster.end_turn(0, force=True)
    cluster.wait(120)
    assert cluster.step() == []
    assert cluster.state(1) == "waiting"


def test_a_vm_whose_store_was_damaged_while_it_prepared_is_asked_again(
    cluster: TurnCluster,
) -> None:
    """A VM whose bridge loses its store while it prepares may have lost the command: it gets
    another one.
    """
    cluster.announce(0)
    cluster.step()
    cluster.answer("accepted")
    cluster.says(0, "preparing")
    cluster.now += timedelta(seconds=1)
    damaged(cluster, 0)
    sent = []
    for _ in range(3):
        cluster.wait(50)
        sent += cluster.step()
    assert sent == ["prepare db-0"]


def test_a_vm_whose_store_was_put_back_is_away_until_it_has_recovered(cluster: TurnCluster) -> None:
    """A VM whose store was put back counts as away until it recovers, although its reports have
    sequences that were used before.
    """
    copy = replace(cluster.vms[0], revisions=dict(cluster.vms[0].revisions))
    for _ in range(20):
        cluster.tell(cluster.vms[0].heartbeat(now=cluster.now, prepares=True))
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("confirmed")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.vms[0] = copy
    cluster.now += timedelta(seconds=5)
    cluster.end(0)
    cluster.now += timedelta(seconds=5)
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.says(0, "recovered")
    assert "prepare db-1" in cluster.step()
    assert cluster.state(0) == "over"


def test_the_event_of_a_lost_store_was_over_before_the_vm_looked(cluster: TurnCluster) -> None:
    """A VM without a retained state whose store is lost, and whose event is over before its bridge
    looks again, is away until a person ends its turn.
    """
    for number in range(3):
        cluster.told_by([number], "scheduled")
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    assert "approve db-0" in cluster.step()
    cluster.now += timedelta(seconds=30)
    cluster.told_by([1, 2], "ended")
    damaged(cluster, 0)
    looked = rfc3339(cluster.now)
    cluster.tell(cluster.vms[0].heartbeat(now=cluster.now, lastPollTime=looked, prepares=True))
    assert cluster.known_event(0).event.state == "ended"
    cluster.step()
    cluster.wait(3600)
    cluster.step()
    assert cluster.state(0) == "stuck"
    cluster.end_turn(0)
    assert cluster.step() == []
    assert cluster.state(0) == "over"
