"""A token approves the event for which it took a turn only while it is good."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update
from support.console.turn_cluster import ALICE, BOB, EventOfTwo, TurnCluster

from console.access.people import Person
from console.access.tokens import add_token, end_token
from console.audit.audit_log import all_rows
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.schema.access_tables import token
from console.fleet.values.decision import Decision
from console.turns.groups import Grouping

ROBOT = Person(name="token:robot", roles=frozenset({"approver"}), is_token=True)


def make_token(cluster: TurnCluster) -> None:
    """Make the robot's token; it ends after ten minutes."""
    add_token(
        cluster.database,
        "robot",
        role="approver",
        site=None,
        days=600 / 86_400,
        actor="alice",
        now=cluster.now.timestamp(),
    )


def revoke(cluster: TurnCluster) -> None:
    """Revoke the robot's token."""
    end_token(cluster.database, "robot", actor="alice", now=cluster.now.timestamp())


def make_bad(cluster: TurnCluster, reason: str) -> None:
    """Make the robot's token bad for that reason."""
    if reason == "was revoked":
        revoke(cluster)
    elif reason == "has expired":
        cluster.now += timedelta(seconds=600)
        cluster.hear()
    else:
        with write_to(cluster.database) as (connection, change_number):
            values = {"role": "viewer", "change_number": change_number}
            connection.execute(update(token).values(**values))


def approvers(cluster: TurnCluster) -> list[str]:
    """Return in whose names approvals were sent."""
    rows = all_rows(cluster.database.reading)
    return [row.actor for row in rows if row.action in ("approve", "take_over")]


def turn_of(cluster: TurnCluster) -> tuple[str, str | None]:
    """Return the state and the reason of the first VM's turn."""
    turn = cluster.known_event(0).turn
    assert turn is not None
    return turn.state, turn.reason


def decision_of(cluster: TurnCluster) -> Decision:
    """Return the newest decision on the first VM's event."""
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    return decision


@pytest.mark.parametrize("reason", ["was revoked", "has expired", "may not approve any more"])
def test_nothing_is_approved_in_the_name_of_a_bad_token(
    by_people: TurnCluster, reason: str
) -> None:
    """If a token is revoked, expires or may not approve any more while the VM prepares, the turn
    fails, and a person decides about the event.
    """
    make_token(by_people)
    by_people.announce(0)
    by_people.approve(0, person=ROBOT)
    assert by_people.step() == ["prepare db-0"]
    by_people.says(0, "prepared")
    make_bad(by_people, reason)
    assert by_people.step() == []
    assert turn_of(by_people) == ("failed", f"token:robot {reason}")
    assert by_people.is_due(0)
    by_people.approve(0)
    by_people.step()
    assert approvers(by_people) == ["alice"]


def test_a_good_token_approves_the_event_of_its_turn(by_people: TurnCluster) -> None:
    """While its token is good, an event that a program asked for is approved in its name."""
    make_token(by_people)
    by_people.announce(0)
    by_people.approve(0, person=ROBOT)
    by_people.step()
    by_people.says(0, "prepared")
    assert by_people.step() == ["approve db-0"]
    assert approvers(by_people) == ["token:robot"]


def test_a_token_that_is_revoked_before_a_command_asks_no_vm_to_prepare(
    by_people: TurnCluster,
) -> None:
    """After a token was revoked no VM is asked to prepare in its name, also if a console has read
    just before that there is work.
    """
    make_token(by_people)
    by_people.announce(0)
    by_people.approve(0, person=ROBOT)
    assert by_people.has_work()
    revoke(by_people)
    assert by_people.step() == []
    assert turn_of(by_people) == ("failed", "token:robot was revoked")


def test_no_further_vm_is_asked_in_the_name_of_a_revoked_token(database: Database) -> None:
    """If the first VM does not answer, no other is asked after the token was revoked."""
    pair = EventOfTwo(database)
    cluster = pair.cluster
    make_token(cluster)
    cluster.end_turn(0, force=True)
    cluster.wait(60)
    cluster.approve(0, person=ROBOT)
    cluster.step()
    pair.approve()
    cluster.wait(20)
    revoke(cluster)
    assert cluster.decide() == []
    cluster.step()
    assert approvers(cluster) == ["token:robot"]
    assert cluster.state(0) == "failed"
    cluster.decisions.stop()


def test_without_groups_no_further_vm_is_asked_in_the_name_of_a_revoked_token(
    database: Database,
) -> None:
    """If the first VM does not answer, no other is asked after the token was revoked, and the
    decision is over.
    """
    cluster = TurnCluster(database)
    cluster.settings = replace(cluster.settings, grouping=Grouping([]))
    cluster.decisions = cluster.decisions_of(Grouping([]))
    make_token(cluster)
    named = {"resources": ["db-0", "db-1"], "not_before": cluster.later(minutes=30)}
    cluster.tell(*(vm.event("E-0", now=cluster.now, **named) for vm in cluster.vms[:2]))
    cluster.approve(0, person=ROBOT)
    cluster.deliver()
    cluster.wait(75)
    revoke(cluster)
    assert cluster.decide() == []
    decision = decision_of(cluster)
    assert (decision.outcome, decision.outcome_reason) == ("overtaken", "token_ended")
    assert approvers(cluster) == ["token:robot"]
    cluster.decisions.stop()


@pytest.mark.parametrize("has_groups", [True, False])
def test_the_approval_of_a_revoked_token_is_not_the_first_of_two(
    database: Database, *, has_groups: bool
) -> None:
    """If a token has approved first and is revoked, the next person is the first of two."""
    cluster = TurnCluster(database, approve=None)
    grouping = cluster.settings.grouping if has_groups else Grouping([])
    cluster.decisions = cluster.decisions_of(grouping, four_eyes=1)
    make_token(cluster)
    cluster.announce(0)
    cluster.approve(0, person=ROBOT)
    revoke(cluster)
    cluster.approve(0, person=BOB)
    decision = decision_of(cluster)
    assert (decision.actor, decision.second_actor, decision.state) == ("bob", None, "second")
    assert cluster.state(0) == "none"
    cluster.approve(0, person=ALICE)
    if not has_groups:
        decision = decision_of(cluster)
        assert (decision.actor, decision.second_actor) == ("bob", "alice")
    cluster.decisions.stop()


def test_the_first_of_two_is_a_good_token_when_the_event_is_approved(database: Database) -> None:
    """If a token has approved first and is revoked while the VM prepares, the approval of the
    second person is not enough, and the turn fails.
    """
    cluster = TurnCluster(database, approve=None)
    cluster.decisions = cluster.decisions_of(cluster.settings.grouping, four_eyes=1)
    cluster.settings = replace(cluster.settings, four_eyes=1)
    make_token(cluster)
    cluster.announce(0)
    cluster.approve(0, person=ROBOT)
    cluster.approve(0, person=BOB)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    revoke(cluster)
    assert cluster.step() == []
    assert turn_of(cluster) == ("failed", "token:robot was revoked")
    cluster.approve(0, person=BOB)
    cluster.approve(0, person=ALICE)
    cluster.step()
    decision = decision_of(cluster)
    assert (decision.actor, decision.second_actor) == ("bob", "alice")
    assert approvers(cluster) == ["alice"]
    cluster.decisions.stop()
