"""The worker of turns: when it reads, how soon it acts, and what it writes in one transaction."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from support.console.turn_cluster import TurnCluster
from support.eventually import eventually

from console.approvals import turn_worker
from console.approvals.command_sender import OutgoingCommand


def test_the_next_turn_follows_the_end_of_one_at_once(
    cluster: TurnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check of the worker ends a turn and gives the next one, if there is no rest
    between them.
    """
    for name in ("_GATHER_SECONDS", "_CHECK_SECONDS"):
        monkeypatch.setattr(turn_worker, name, 3600.0)
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.says(0, "prepared")
    cluster.answer("confirmed")
    cluster.step()
    cluster.end(0)
    cluster.wait(1)
    cluster.step()
    cluster.says(0, "recovered")
    cluster.wait(1)
    assert (cluster.state(0), cluster.state(1)) == ("away", "waiting")
    sent: list[OutgoingCommand] = []
    worker = turn_worker.TurnWorker(
        cluster.snapshots,
        cluster.settings,
        cluster.facts,
        run_id="one",
        send=sent.append,
        connected=lambda: {"broker": 1.0},
        on_commit=lambda: None,
    )
    worker.start()
    try:
        eventually(lambda: bool(sent), what="the command to prepare of the next turn", timeout=20)
    finally:
        worker.stop()
    assert (cluster.state(0), cluster.state(1)) == ("over", "preparing")
    assert [each.command.vm_id for each in sent] == [cluster.vms[1].vm_id]


def test_most_heartbeats_cause_no_read(cluster: TurnCluster) -> None:
    """A heartbeat causes a read only if it is from a VM whose event is over, because it may end
    that VM's turn.
    """
    cluster.announce(0)
    cluster.step()
    assert not cluster.has_work()
    assert not cluster.reads_again()
    cluster.now += timedelta(seconds=0.4)
    cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms))
    assert not cluster.reads_again()
    cluster.end(0)
    assert cluster.reads_again()
    cluster.step()
    assert cluster.reads_again()
    cluster.now += timedelta(seconds=0.4)
    cluster.tell(cluster.vms[1].heartbeat(now=cluster.now, prepares=True))
    assert not cluster.reads_again()
    cluster.tell(cluster.vms[0].heartbeat(now=cluster.now, prepares=True))
    assert cluster.reads_again()


def test_after_a_step_there_may_be_a_next_one(cluster: TurnCluster) -> None:
    """After a step, this console and others read again, because a further step may follow."""
    cluster.announce(0)
    assert cluster.has_work()
    assert not cluster.reads_again()
    cluster.step(steps=1)
    assert cluster.reads_again()


def test_many_consoles_at_once_take_one_turn(cluster: TurnCluster) -> None:
    """Many consoles that look at the same time, each on its own thread, release one VM together."""
    for number in range(3):
        cluster.announce(number)
    sent: list[str] = []
    several = [
        threading.Thread(target=lambda: sent.extend(cluster.step(steps=3))) for _ in range(4)
    ]
    for each in several:
        each.start()
    for each in several:
        each.join()
    assert sent == ["prepare db-0"]


def test_a_turn_is_in_the_audit_before_its_approval(cluster: TurnCluster) -> None:
    """If the VM prepares nothing, its turn and its approval are written in one transaction, and the
    turn comes first in the audit.
    """
    cluster.now += timedelta(seconds=1)
    cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=False) for vm in cluster.vms))
    cluster.announce(0)
    assert cluster.step(steps=1) == ["approve db-0"]
    assert cluster.actions() == ["take_turn", "approve"]
