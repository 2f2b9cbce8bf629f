"""Groups whose settings allow fewer VMs to be away than hold turns."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import START, TurnCluster

from console.config.groups import GroupSettings
from console.db.connection.opening import Database
from console.turns.groups import Grouping
from wire.moment import rfc3339
from wire.record import PREPARATION

pytestmark = ON_SQLITE


def lower(cluster: TurnCluster, at_most: int) -> None:
    """Return a console whose settings allow fewer VMs to be away."""
    rule = GroupSettings.model_validate({"name": "db", "approve": {}, "at_most": at_most})
    cluster.settings = replace(cluster.settings, grouping=Grouping([rule]))


def test_a_turn_that_has_not_begun_gives_way_in_a_group_that_became_too_small(
    database: Database,
) -> None:
    """In a group that became too small, a VM whose command never came is asked only after the VM
    that is prepared.
    """
    cluster = TurnCluster(database, at_most=2)
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    lower(cluster, 1)
    cluster.says(0, "prepared")
    cluster.wait(60)
    assert cluster.step() == []
    cluster.wait(70)
    assert cluster.step() == []  # its records may still arrive
    cluster.wait(10)
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]
    cluster.says(1, "prepared")
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_turns_that_have_not_begun_do_not_wait_for_each_other(database: Database) -> None:
    """If neither of two commands came and the group became too small, the first turn continues."""
    cluster = TurnCluster(database, at_most=2)
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    lower(cluster, 1)
    cluster.wait(60)
    assert cluster.step() == []
    cluster.wait(70)
    assert cluster.step() == []  # its records may still arrive
    cluster.wait(10)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.step() == []
    assert (cluster.state(0), cluster.state(1)) == ("preparing", "preparing")
    cluster.decisions.stop()


def test_what_is_prepared_already_does_not_wait_for_each_other(database: Database) -> None:
    """If the settings allow fewer VMs than have turns, those that are prepared go one after the
    other.
    """
    cluster = TurnCluster(database, at_most=2)
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    lower(cluster, 1)
    cluster.says(0, "prepared")
    cluster.says(1, "prepared")
    cluster.lose(2)
    assert cluster.step() == []  # a crash delays all the same
    cluster.wait(1)
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.says(0, "recovered")
    cluster.wait(71)
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_a_vm_whose_post_may_have_worked_waits_behind_nothing(database: Database) -> None:
    """In a group that became too small, no earlier event is approved beside one that Azure may have
    been told to start, although its approval has failed.
    """
    cluster = TurnCluster(database, at_most=2)
    cluster.announce(1)
    cluster.now += timedelta(seconds=1)
    cluster.announce(0)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    lower(cluster, 1)
    (asked,) = [each for each in cluster.known_event(0).decided.commands if each.act == "approve"]
    about = {"jti": asked.jti, "actor": "group:db", "now": cluster.now}
    for state, reason in (("accepted", None), ("posted", None), ("failed", "imds_unreachable")):
        cluster.tell(cluster.vms[0].receipt("E-0", state, reason=reason, **about))
    cluster.decide()
    cluster.says(1, "prepared")
    assert cluster.step() == []
    cluster.decisions.stop()


def both_drained(cluster: TurnCluster) -> None:
    """Give two VMs their turns, let them begin to prepare, and have Azure change both events."""
    cluster.announce(0)
    cluster.announce(1)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-1"]
    for number in (0, 1):
        cluster.says(number, "preparing")
    cluster.wait(5)


def end_drained(cluster: TurnCluster, number: int, **more: Any) -> None:
    """Have Azure change an event while its VM prepares for it, which makes that preparation
    useless.
    """
    before = cluster.known_event(number).shown.report.fingerprint
    cluster.change(number, **more)
    data = {"evt": f"E-{number}", "evh": before, "sink": "drain", "cause": "deadline"}
    more = {"reason": "event_changed", "state": "failed"}
    cluster.tell(cluster.vms[number].record(PREPARATION, data | more, now=cluster.now))


def test_turns_whose_vms_are_drained_do_not_wait_for_each_other(database: Database) -> None:
    """In a group that became too small for two turns, both of which prepare again, one goes after
    the other.
    """
    cluster = TurnCluster(database, at_most=2)
    both_drained(cluster)
    lower(cluster, 1)
    for number in (0, 1):
        end_drained(cluster, number)
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-0"]
    cluster.end(0)
    cluster.wait(1)
    assert cluster.step() == []
    cluster.says(0, "recovered")
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]
    cluster.says(1, "prepared")
    cluster.answer("confirmed")
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_a_drained_turn_that_got_no_answer_is_tried_again(database: Database) -> None:
    """In a group that became too small for two turns, a turn is tried again if its commands did not
    come.
    """
    cluster = TurnCluster(database, at_most=2)
    both_drained(cluster)
    lower(cluster, 1)
    for number in (0, 1):
        end_drained(cluster, number, not_before=rfc3339(START + timedelta(hours=5)))
    sent = []
    for _ in range(7):
        cluster.wait(50)
        sent += cluster.step()
    assert cluster.state(0) == "failed"
    assert set(sent) == {"prepare db-0"}
    for _ in range(7):
        cluster.wait(50)
        sent = cluster.step()
    assert sent == ["prepare db-0"]
    cluster.decisions.stop()


def test_drained_turns_that_need_more_room_than_there_is_wait_for_people(
    database: Database,
) -> None:
    """If Azure changes both events to name one VM more, nothing more is sent away: a VM that has
    prepared does not come back before its event is over. A person can go beyond the budget.
    """
    cluster = TurnCluster(database, at_most=2)
    cluster.vms += [FakeVm(name=f"db-{number}") for number in (3, 4)]
    cluster.hear()
    both_drained(cluster)
    for number in (0, 1):
        names = [f"db-{number}", f"db-{number + 3}"]
        end_drained(
            cluster, number, resources=names, not_before=rfc3339(START + timedelta(hours=5))
        )
        other = cluster.vms[number + 3]
        soon = rfc3339(START + timedelta(hours=5))
        more = {"resources": names, "not_before": soon, "now": cluster.now}
        cluster.tell(other.event(f"E-{number}", **more))
    for _ in range(10):
        cluster.wait(50)
        assert cluster.step() == []
    cluster.approve(0, force=True)
    assert sorted(cluster.step()) == ["prepare db-0", "prepare db-3"]
    cluster.decisions.stop()
