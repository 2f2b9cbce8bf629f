"""Commands to prepare: when they are sent again, and to whom none is handed out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.turn_cluster import TurnCluster

from console.audit.audit_log import all_rows
from console.db.decisions.decision_rows import site_of
from console.records.parse import parse_status
from wire.moment import rfc3339


def test_a_prepare_command_is_sent_again_until_it_is_answered(cluster: TurnCluster) -> None:
    """A prepare command is sent again every ten seconds with the same jti; an answer ends that,
    also `replayed`.
    """
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(9)
    assert cluster.step() == []
    cluster.wait(2)
    assert cluster.step() == ["prepare db-0"]
    (row,) = [row for row in all_rows(cluster.database.reading) if row.action == "prepare"]
    assert row.jti is not None
    answer = {"jti": row.jti, "act": "prepare", "actor": "group:db"}
    cluster.tell(cluster.vms[0].receipt("E-0", "accepted", now=cluster.now, **answer))
    cluster.wait(30)
    assert cluster.step() == []
    with cluster.snapshots.open() as snapshot:
        known = snapshot.events.find_event("E-0")
    assert known is not None
    assert known.receipts == []


def test_a_refusal_that_may_pass_is_followed_by_another_command(cluster: TurnCluster) -> None:
    """If a VM refuses because it has not seen the event yet, another command follows, with a new
    jti and a row of the audit.
    """
    cluster.announce(0)
    cluster.step()
    rows = all_rows(cluster.database.reading)
    jti = next(row.jti for row in rows if row.action == "prepare")
    answer = {"jti": jti, "act": "prepare", "reason": "unknown_event"}
    cluster.tell(cluster.vms[0].receipt("E-0", "rejected", now=cluster.now, **answer))
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    assert cluster.actions() == ["take_turn", "prepare", "prepare"]


def test_a_vm_that_lost_what_it_had_accepted_is_asked_again(cluster: TurnCluster) -> None:
    """A VM that accepted a command and then lost its store is asked to prepare again."""
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    cluster.answer("accepted")
    cluster.wait(60)
    assert cluster.step() == []
    cluster.wait(61)
    assert cluster.step() == ["prepare db-0"]


def test_a_vm_that_refuses_again_and_again_is_asked_less_and_less(cluster: TurnCluster) -> None:
    """A VM that refuses each command, because its clock is wrong, is asked more and more seldom, so
    it does not fill the audit.
    """
    soon = cluster.later(hours=3)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    for _ in range(60):
        if "prepare db-0" in cluster.step(steps=1):
            cluster.answer("rejected", reason="not_yet_valid")
        cluster.wait(60)
    assert cluster.actions().count("prepare") < 20


@pytest.mark.parametrize("act", ["prepare", "approve"])
@pytest.mark.parametrize("meanwhile", ["nothing", "crash", "other groups"])
def test_no_command_is_handed_out_that_has_no_room_any_more(
    cluster: TurnCluster, act: str, meanwhile: str
) -> None:
    """A VM that fetches its commands late does not get one for which there was room when it was
    written, and is none now; nor from a console whose groups are not the latest, which cannot know.
    """
    cluster.poll()
    cluster.announce(0)
    assert cluster.step() == ["prepare db-0"]
    if act == "approve":
        cluster.answer("confirmed")
        cluster.says(0, "prepared")
        cluster.poll()
        assert cluster.step() == ["approve db-0"]
    cluster.now += timedelta(seconds=12)
    cluster.poll()
    if meanwhile == "crash":
        cluster.lose(2)
    elif meanwhile == "other groups":
        cluster.start_another_console()
    found = cluster.decisions.commands_for(cluster.vms[0].vm_id)
    assert [each.act for each in found] == ([act] if meanwhile == "nothing" else [])


def test_a_command_that_was_fetched_counts_although_it_is_offered_again(
    cluster: TurnCluster,
) -> None:
    """A command that a VM has fetched over HTTPS counts, also after the end of the turn, because
    the VM may follow it.
    """
    cluster.poll()
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(f"UPDATE command SET sent_at = {cluster.now.timestamp()}")
    cluster.now += timedelta(seconds=11)
    cluster.poll()
    assert cluster.step() == ["prepare db-0"]
    cluster.end_turn(0, force=True)
    assert cluster.step() == []
    cluster.now += timedelta(seconds=71)
    cluster.poll()
    assert cluster.step() == ["prepare db-1"]


def test_commands_go_to_the_site_at_which_their_vm_is_online(cluster: TurnCluster) -> None:
    """A VM whose site was given at its enrolment, or that reports another one that nobody has
    accepted yet, gets its commands all the same.
    """
    vm = cluster.vms[0]
    online = vm.status(commands=True, prepares=True, time=rfc3339(cluster.now))
    at = cluster.now.timestamp()
    cluster.store(
        [parse_status(online, source="broker", received_at=at, vm_id=vm.vm_id, site="paris")]
    )
    with cluster.snapshots.open() as snapshot:
        assert site_of(snapshot.connection, vm.vm_id) == "paris"
        assert site_of(snapshot.connection, cluster.vms[1].vm_id) == "default"
