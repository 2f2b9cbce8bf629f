"""What a group approves by itself in its turn: which events, when, on which VM, and when again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.console.empty_database import ON_SQLITE
from support.console.turn_cluster import START, EventOfTwo, TurnCluster
from support.rules import EVENT_MATCH, OTHER_EVENT_MATCH

from console.config.groups import GroupSettings
from console.db.connection.opening import Database
from console.turns.groups import Grouping
from sinks.shared.event_match import EventMatch

pytestmark = ON_SQLITE


@pytest.mark.parametrize(
    "other", [{}, *({name: value} for name, value in OTHER_EVENT_MATCH.items())], ids=str
)
def test_a_group_approves_the_events_that_its_keys_mean(
    database: Database, other: dict[str, Any]
) -> None:
    """Each key of a group is compared with what the VM has reported."""
    assert EVENT_MATCH.keys() == EventMatch.model_fields.keys() == OTHER_EVENT_MATCH.keys()
    cluster = TurnCluster(database, approve={**EVENT_MATCH, **other})
    soon = cluster.later(minutes=15)
    cluster.tell(
        cluster.vms[0].event(
            "E-0", event_type="Freeze", duration=9, now=cluster.now, not_before=soon
        )
    )
    assert cluster.step() == ([] if other else ["prepare db-0"])
    cluster.decisions.stop()


@pytest.mark.parametrize(
    "keys",
    [
        {"approve": {"event_type": ["Freeze"]}},
        {"window": [{"days": ["Sun"], "from": "11:00", "to": "12:10", "zone": "UTC"}]},
    ],
    ids=["type", "window"],
)
def test_a_group_approves_what_it_approves_at_the_moment_of_the_approval(
    database: Database, keys: dict[str, object]
) -> None:
    """A group approves an event by its keys and its window at the moment of the approval, not by
    those at which the turn was taken.
    """
    cluster = TurnCluster(database, **keys)
    later = cluster.later(hours=5)
    cluster.tell(
        cluster.vms[0].event("E-0", event_type="Freeze", now=cluster.now, not_before=later)
    )
    assert cluster.step() == ["prepare db-0"]
    if "approve" in keys:
        cluster.change(0, event_type="Redeploy")
    cluster.wait(3600)
    cluster.step()
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"
    cluster.decisions.stop()


def test_a_turn_goes_on_in_the_next_window(database: Database) -> None:
    """If the window closes while the VM prepares, the turn continues in the next one, as Azure has
    given three days.
    """
    window = {"days": ["Sun", "Mon"], "from": "12:00", "to": "12:30", "zone": "UTC"}
    cluster = TurnCluster(database, window=[window])
    soon = cluster.later(days=3)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(2400)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    assert cluster.state(0) == "failed"
    cluster.now = START + timedelta(days=1)
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]
    cluster.decisions.stop()


def test_without_a_key_nothing_that_is_prepared_is_approved(cluster: TurnCluster) -> None:
    """A console that starts again without its key writes no approval for what is prepared, and says
    why.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.settings = replace(cluster.settings, can_sign=False)
    assert cluster.step() == []
    assert "approve" not in cluster.actions()
    cluster.settings = replace(cluster.settings, can_sign=True)
    assert cluster.step() == ["approve db-0"]


def test_a_turn_that_cannot_be_approved_says_why(cluster: TurnCluster) -> None:
    """A turn that is not approved because a person on the VM is approving the event, without
    progress, says so.
    """
    cluster.announce(0)
    cluster.step()
    more = {"jti": "local-1", "actor": "local:root", "now": cluster.now}
    cluster.tell(cluster.vms[0].receipt("E-0", "accepted", **more))
    cluster.says(0, "prepared")
    assert cluster.step() == []
    turn = cluster.known_event(0).turn
    assert turn is not None
    assert (turn.state, turn.reason) == (
        "prepared",
        "the event is being approved already; nothing more was sent",
    )


def test_the_next_vm_is_asked_to_approve_only_if_there_is_room_still(pair: EventOfTwo) -> None:
    """If the first VM does not answer, the second is not asked to approve when another member has
    crashed meanwhile.
    """
    cluster = pair.cluster
    first = pair.approve()
    cluster.wait(3)
    cluster.lose(4)
    for _ in range(10):
        cluster.now += timedelta(seconds=2)
        assert cluster.decide() == []
        assert cluster.step() == []
    cluster.wait(1)
    (then,) = cluster.decide()
    assert {first, then} == {"approve db-0", "approve db-1"}


def test_no_vm_is_asked_to_approve_an_event_that_holds_no_turn_any_more(database: Database) -> None:
    """If the event was over and came back unchanged while the console could not hear, no VM is
    asked to approve it without a turn.
    """
    pair = EventOfTwo(database)
    cluster = pair.cluster
    pair.approve()
    cluster.wait(90)
    pair.tell("ended")
    for number in (0, 1):
        pair.say(number, "recovered")
    cluster.wait(1)
    cluster.step()
    assert cluster.state(0) == "over"
    by_people = GroupSettings.model_validate({"name": "db", "at_most": 2})
    cluster.settings = replace(cluster.settings, grouping=Grouping([by_people]))
    pair.tell("scheduled")
    cluster.step()
    assert cluster.state(0) == "waiting"
    assert cluster.decide() == []


def test_a_group_approves_again_what_no_vm_has_followed(cluster: TurnCluster) -> None:
    """If a VM was cut off for a minute, its group asks it again, after pauses that double."""
    soon = cluster.later(hours=10)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    sent = cluster.step()
    cluster.deliver()
    for _ in range(70):
        cluster.wait(10)
        sent += cluster.decide() + cluster.step()
        cluster.deliver()
    assert sent == ["approve db-0"] * 4


def test_a_group_approves_again_what_was_not_sent_because_the_vm_came_back(
    cluster: TurnCluster,
) -> None:
    """An approval that was not sent, because its VM was prepared no more, has failed for a reason
    that may pass: the VM prepares again, and the event is approved then.
    """
    soon = cluster.later(hours=3)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.says(0, "recovered")
    cluster.wait(1)
    for _ in range(10):
        cluster.wait(10)
        cluster.decide()
    decision = cluster.known_event(0).decided.decision
    assert decision is not None
    assert (decision.outcome, decision.outcome_reason) == ("overtaken", "changed")
    sent = []
    for _ in range(40):
        sent += cluster.step()
        cluster.wait(30)
        if "prepare db-0" in sent:
            break
    assert "prepare db-0" in sent


def test_a_group_approves_nothing_again_that_a_vm_has_refused(cluster: TurnCluster) -> None:
    """A group does not ask again after a VM has refused, because another command would be refused
    too.
    """
    cluster.announce(0)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.step()
    cluster.deliver()
    (command,) = cluster.known_event(0).decided.commands
    more = {"jti": command.jti, "actor": "group:db", "now": cluster.now}
    cluster.tell(cluster.vms[0].receipt("E-0", "rejected", reason="unknown_key", **more))
    for _ in range(20):
        cluster.wait(20)
        assert cluster.decide() + cluster.step() == []
    assert cluster.state(0) == "failed"


@pytest.mark.parametrize("is_latest", [True, False])
def test_a_console_with_outdated_groups_asks_no_further_vm(
    pair: EventOfTwo, *, is_latest: bool
) -> None:
    """The VM that was asked to approve does not answer: the next one is asked, but not by a console
    whose groups are not the latest, for which there may be room that is none.
    """
    cluster = pair.cluster
    pair.approve()
    if not is_latest:
        cluster.start_another_console()
    cluster.wait(75)
    sent = cluster.decide()
    assert [each.split()[0] for each in sent] == (["approve"] if is_latest else [])
