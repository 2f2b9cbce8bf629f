"""Persons who end a turn: when they may, and what follows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.console.turn_cluster import EventOfTwo, TurnCluster

from console.access.people import Person
from console.approvals.refusal_reasons import DecisionRefusedError
from console.db.connection.transactions import write_to
from console.db.decisions import decision_rows
from console.db.decisions.turn_rows import read_turns, upsert_turns
from console.db.upkeep.removal import delete_vm
from console.fleet.values.keys import EventKey
from console.turns.facts import Turn, TurnVm


def test_a_person_ends_a_turn_that_is_stuck(cluster: TurnCluster) -> None:
    """A person can end a turn an hour after its event. What the VM has prepared does not count any
    more, and the next VM gets its turn.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.end(0)
    cluster.step()
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0)
    assert refused.value.reason in ("not_stuck", "under_way")
    cluster.wait(3700)
    cluster.tell(cluster.vms[1].event("E-1", transition="updated", now=cluster.now))
    cluster.step()
    assert cluster.state(0) == "stuck"
    cluster.end_turn(0)
    assert cluster.state(0) == "over"
    assert "prepare db-1" in cluster.step()
    assert "end_turn" in cluster.actions()
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0)
    assert refused.value.reason == "no_turn"


def test_a_person_ends_a_turn_whose_vm_accepted_the_approval_and_is_gone(
    cluster: TurnCluster,
) -> None:
    """A person cannot end the turn while its VM may still act on the approval, and afterwards only
    by force.
    """
    soon = cluster.later(hours=10)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0, force=True)
    assert refused.value.reason == "under_way"
    cluster.wait(600)
    cluster.step()
    cluster.end_turn(0, force=True)
    assert "end_turn" in cluster.actions()


def test_no_turn_ends_by_force_while_a_vm_may_follow_its_approval(cluster: TurnCluster) -> None:
    """A person cannot end a turn while a VM may still follow its approval, even if a document has
    left the event out, because the event may return as it was.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.now += timedelta(seconds=3)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", status="Unknown", now=cluster.now))
    cluster.says(0, "recovered")
    cluster.wait(2)
    cluster.step()
    assert cluster.state(0) == "away"
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0, force=True)
    assert refused.value.reason == "under_way"
    cluster.wait(75)
    cluster.step()
    assert cluster.state(0) == "over"


def test_without_a_role_no_turn_is_ended(cluster: TurnCluster) -> None:
    """A person without the role approver cannot end a turn."""
    cluster.announce(0)
    cluster.step()
    viewer = Person(name="bob", roles=frozenset({"viewer"}))
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0, person=viewer, force=True)
    assert refused.value.reason == "role"


def test_a_turn_that_a_person_has_ended_is_not_taken_again(cluster: TurnCluster) -> None:
    """As long as the event has not changed, it is left to people after a person has ended
    its turn.
    """
    cluster.announce(0)
    cluster.step()
    cluster.end_turn(0, force=True)
    assert cluster.step() == []
    assert cluster.step() == []
    assert cluster.state(0) == "waiting"
    cluster.tell(cluster.vms[0].event("E-0", transition="updated", now=cluster.now))
    assert cluster.step() == ["prepare db-0"]


def test_who_ends_a_turn_after_its_event_says_that_its_vm_is_back(cluster: TurnCluster) -> None:
    """If a person ends a turn after its event, a command that its VM had accepted does not hold up
    others for an hour.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("accepted")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.wait(71)
    assert cluster.step() == []
    cluster.end_turn(0, force=True)
    assert cluster.step() == ["prepare db-1"]


def test_the_end_of_a_turn_ends_its_approval(pair: EventOfTwo) -> None:
    """If a turn ends before the first VM has answered, because the console could not hear it, the
    second VM is not asked.
    """
    cluster = pair.cluster
    pair.approve()
    cluster.wait(90)
    cluster.end_turn(0, force=True)
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert decision.state == "over"
    cluster.wait(5)
    assert cluster.decide() == []
    assert cluster.step() == []


def remove_event(cluster: TurnCluster) -> None:
    """Remove what the first VM has sent, and with it the only report of its event."""
    with write_to(cluster.database) as (connection, number):
        snapshot = cluster.snapshots.of(connection)
        vm_id = cluster.vms[0].vm_id
        delete_vm(connection, vm_id, number, now=snapshot.now, listening=snapshot.listening)
        assert snapshot.events.find_event("E-0") is None
    cluster.wait(1)


def open_turns(cluster: TurnCluster) -> dict[str, str]:
    """Return the states of the turns that are not over, by eventId."""
    with cluster.snapshots.open() as snapshot:
        return {each.event_id: each.state for each in read_turns(snapshot.connection)}


def test_a_person_ends_a_turn_whose_event_has_no_row(cluster: TurnCluster) -> None:
    """A turn whose event the console does not know any more, because what its VM had sent was
    removed, is ended as any other: by force as long as it is not stuck. Then the next VM goes.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.answer("accepted")
    remove_event(cluster)
    assert cluster.step() == []
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0)
    assert refused.value.reason == "not_stuck"
    cluster.end_turn(0, force=True)
    assert "E-0" not in open_turns(cluster)
    assert "end_turn" in cluster.actions()
    cluster.wait(70)
    assert cluster.step() == ["prepare db-1"]
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0, force=True)
    assert refused.value.reason == "unknown"


def test_no_turn_without_a_row_of_its_event_ends_while_its_vm_may_follow_the_approval(
    cluster: TurnCluster,
) -> None:
    """A VM whose event the console does not know any more may still tell Azure to start it; the
    approval goes to nobody else after the turn was ended.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    remove_event(cluster)
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0, force=True)
    assert refused.value.reason == "under_way"
    cluster.wait(70)
    cluster.end_turn(0, force=True)
    assert open_turns(cluster) == {}
    with cluster.snapshots.open() as snapshot:
        assert decision_rows.read_all_open(snapshot.connection) == []


def test_who_decides_for_one_site_ends_no_turn_whose_event_has_no_row(
    cluster: TurnCluster,
) -> None:
    """The console does not know any more which sites the event concerned, so a person of one site
    is refused.
    """
    cluster.announce(0)
    cluster.step()
    remove_event(cluster)
    ann = Person(name="ann", roles=frozenset({"approver"}), site="default")
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.end_turn(0, person=ann, force=True)
    assert refused.value.reason == "site"


def test_the_api_ends_a_turn_of_which_only_the_row_is_known(tmp_path: Path) -> None:
    """The answer is 204 because there is no event to show, and 404 once the turn is over."""
    with ConsoleStage(tmp_path) as stage:
        vm = FakeVm(name="gone")
        stage.put(vm.heartbeat(now=stage.now - timedelta(hours=1)))
        held = Turn(
            event_key=EventKey("E-0", "sub-1/group-1"),
            fingerprint="f",
            state="stuck",
            since=stage.now.timestamp(),
            vms=(TurnVm(vm_id=vm.vm_id, groups=frozenset({"db"})),),
        )
        with write_to(stage.console.database) as (connection, number):
            upsert_turns(connection, [held], number)
        url = f"{stage.url}/api/v1/events/E-0/turn/end"
        other = stage.http.post(f"{url}?scope=sub-2%2Fgroup-2", json={"reason": "gone"}, timeout=20)
        ended = stage.http.post(url, json={"reason": "gone"}, timeout=20)
        again = stage.http.post(url, json={"reason": "gone"}, timeout=20)
        assert [each.status_code for each in (other, ended, again)] == [404, 204, 404]
        assert ended.content == b""
