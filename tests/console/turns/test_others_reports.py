"""A VM that is away is not back because of what other VMs report or one document leaves out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.console.records import FakeVm
from support.console.turn_cluster import EventOfTwo, TurnCluster

from console.db.connection.opening import Database


def away_again(database: Database, *, rest: float) -> TurnCluster:
    """Let the event of the first VM be approved and begin, then be missing from one document; the
    VM has recovered and rests.
    """
    cluster = TurnCluster(database, rest=rest)
    cluster.told_by((0, 2), "scheduled")
    cluster.step()
    cluster.answer("confirmed")
    cluster.says(0, "prepared")
    assert cluster.step() == ["approve db-0"]
    for each in cluster.known_event(0).decided.commands:
        more = {"jti": each.jti, "actor": each.subject, "now": cluster.now}
        cluster.tell(cluster.vms[0].receipt("E-0", "confirmed", **more))
    cluster.told_by((0, 2), "started")
    cluster.step()
    cluster.wait(1)
    cluster.told_by((0, 2), "ended")
    cluster.says(0, "recovered")
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.told_by((0, 2), "started")
    cluster.step()
    return cluster


def test_a_peer_ends_no_turn_of_an_event_that_was_missing_for_a_moment(database: Database) -> None:
    """A VM that was heard after its event was missing for a moment is not back when a peer reports
    the real end.
    """
    cluster = away_again(database, rest=60)
    cluster.announce(1)
    for _ in range(11):
        cluster.now += timedelta(seconds=10)
        cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms[1:]))
        cluster.settle()
        assert cluster.step() == []
    cluster.told_by((2,), "ended")
    cluster.settle()
    assert cluster.known_event(0).event.state == "ended"
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.decisions.stop()


def test_a_vm_rests_after_the_end_of_an_event_that_was_missing_for_a_moment(
    database: Database,
) -> None:
    """A VM rests after the real end of its event; its rest after the moment in which the event was
    missing does not count.
    """
    cluster = away_again(database, rest=300)
    cluster.wait(400)
    cluster.told_by((0, 2), "ended")
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.wait(290)
    cluster.step()
    assert cluster.state(0) == "away"
    cluster.wait(20)
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.decisions.stop()


def test_a_vm_that_azure_took_is_away_though_a_peer_reports_the_end(cluster: TurnCluster) -> None:
    """A late VM counts as away for its event although a peer reports the end, because it is not
    known whether the VM is back.
    """
    cluster.told_by((0, 2), "scheduled")
    cluster.told_by((0, 2), "started")
    cluster.announce(1)
    for _ in range(11):
        cluster.now += timedelta(seconds=10)
        cluster.tell(*(vm.heartbeat(now=cluster.now, prepares=True) for vm in cluster.vms[1:]))
        cluster.settle()
        assert cluster.step() == []
    cluster.told_by((2,), "ended")
    cluster.settle()
    assert cluster.known_event(0).event.state == "ended"
    assert cluster.step() == []
    cluster.told_by((0,), "ended")
    assert cluster.step() == ["prepare db-1"]


def test_a_liar_ends_no_turn_of_a_vm_that_reports_its_event(database: Database) -> None:
    """A VM that prepares nothing keeps its turn while it reports the event itself, also if others
    of its place report the event with other names, and their report is shown.
    """
    cluster = TurnCluster(database, match={"name": ["db-*"]})
    liars = [FakeVm(name=f"web-{number}") for number in range(2)]

    cluster.tell(*(vm.heartbeat(now=cluster.now) for vm in liars))
    cluster.now += timedelta(seconds=1)
    cluster.approved_without_preparing("accepted", "posted", "confirmed")
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    cluster.decide()
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.now += timedelta(seconds=3)
    soon = cluster.later(minutes=15)
    lie = {"resources": ["web-0"], "not_before": soon, "now": cluster.now}
    cluster.tell(*(vm.event("E-0", **lie) for vm in liars))
    assert cluster.known_event(0).shown.report.event.resources == ("web-0",)
    for _ in range(5):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=3)
        cluster.hear_of(range(3), prepares=False)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.tell(*(vm.event("E-0", transition="ended", now=cluster.now) for vm in liars))
    cluster.now += timedelta(seconds=1)
    cluster.hear_of(range(3), prepares=False)
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


def test_a_peer_that_says_that_an_event_is_over_brings_no_vm_back_that_reports_it(
    database: Database,
) -> None:
    """A VM that prepares nothing keeps its turn while it reports the event as started, also if a
    peer that is known longer reports the end and the VM was heard since.
    """
    cluster = TurnCluster(database, match={"name": ["db-0", "db-1"]})
    with database.writing.begin() as connection:
        connection.exec_driver_sql("UPDATE vm SET name_since = 1 WHERE name = 'db-2'")

    cluster.now += timedelta(seconds=1)
    cluster.approved_without_preparing("accepted", "posted")
    cluster.decide()
    lie = {"resources": ("db-0", "db-2"), "now": cluster.now}
    for transition in ("started", "ended"):
        cluster.tell(cluster.vms[2].event("E-0", transition=transition, **lie))
    cluster.now += timedelta(seconds=5)
    cluster.tell(cluster.vms[0].event("E-0", transition="started", now=cluster.now))
    for _ in range(4):
        cluster.decide()
        assert cluster.step() == []
        cluster.now += timedelta(seconds=5)
        cluster.hear_of(range(3), prepares=False)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.now += timedelta(seconds=70)
    cluster.hear_of(range(3), prepares=False)
    cluster.decide()
    assert cluster.step() == ["approve db-1"]
    cluster.decisions.stop()


@pytest.mark.parametrize("transition", ["updated", "ended"])
@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_vm_that_the_event_has_left_out_says_again_that_it_is_prepared(
    database: Database, transition: str, *, is_at_once: bool
) -> None:
    """If another VM reports that the event does not name a VM, or is over, and is then as it was,
    that VM has to say again that it is prepared: its record that it has recovered may be late.
    """
    pair = EventOfTwo(database)
    cluster, reporter = pair.cluster, pair.cluster.vms[0]
    both = {"resources": ("db-0", "db-1"), "not_before": pair.soon}
    without = both if transition == "ended" else both | {"resources": ("db-0",)}
    pair.say(1, "prepared")
    pair.confirm(1)
    cluster.wait(20)
    before = reporter.event("E-0", transition=transition, now=cluster.now, **without)
    after = reporter.event("E-0", transition="updated", now=cluster.now, **both)
    if is_at_once:
        cluster.tell(before, after)
    else:
        cluster.tell(before)
        cluster.step()
        cluster.tell(after)
    pair.say(0, "prepared")
    sent = []
    for _ in range(14):
        sent += cluster.step()
        cluster.wait(10)
    assert "prepare db-1" in sent
    assert not any(each.startswith("approve") for each in sent)
    pair.confirm(1)
    assert any(each.startswith("approve") for each in cluster.step())


@pytest.mark.parametrize("transition", ["updated", "ended"])
def test_a_vm_outside_of_the_group_makes_no_preparation_void(
    database: Database, transition: str
) -> None:
    """A VM of no group that reports again and again that the event does not name a VM, or is over,
    does not hold up its approval.
    """
    cluster = TurnCluster(database, match={"name": ["db-*"]})
    liar = FakeVm(name="web-0")
    soon = cluster.later(minutes=30)
    cluster.tell(liar.heartbeat(now=cluster.now))
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-0"]
    cluster.says(0, "prepared")
    cluster.now += timedelta(seconds=1)
    lie = liar.event("E-0", transition=transition, now=cluster.now, resources=["web-1"])
    cluster.tell(lie)
    assert cluster.step() == ["approve db-0"]
    cluster.decisions.stop()


def test_a_vm_that_an_event_names_anew_by_its_own_report_is_not_passed_over(
    cluster: TurnCluster,
) -> None:
    """If a VM of the group reports later than the VM that the event is shown by that it names both,
    no group approves it as it is shown, until both reports are the same.
    """
    cluster.vms.sort(key=lambda vm: vm.vm_id)  # two reports count the same: the first VM's is shown
    first, second = cluster.vms[:2]
    soon = cluster.later(minutes=30)
    one: dict[str, Any] = {"resources": [first.name], "not_before": soon}
    both = one | {"resources": [first.name, second.name]}
    cluster.tell(first.event("E-0", now=cluster.now, **one))
    assert cluster.step() == [f"prepare {first.name}"]
    cluster.now += timedelta(seconds=1)
    cluster.tell(second.event("E-0", now=cluster.now, **both))
    cluster.says(0, "prepared")
    assert cluster.step() == []
    turn = cluster.known_event(0).turn
    assert turn is not None
    assert turn.reason == "the VMs that report it do not agree"
    cluster.now += timedelta(seconds=1)
    cluster.tell(second.event("E-0", transition="updated", now=cluster.now, **one))
    assert cluster.step() == [f"approve {first.name}"]


@pytest.mark.parametrize("named", [("db-0", "db-1"), ("db-0",)])
def test_a_vm_is_away_once_it_reports_that_its_event_has_started(
    database: Database, named: tuple[str, ...]
) -> None:
    """A VM whose event has started is away by its own report, also while the event is shown as
    Scheduled by a VM that is down by then and still counts as heard, and that it names or named.
    """
    cluster = TurnCluster(database, approve={"event_type": ["Reboot"]})
    event: dict[str, Any] = {"event_type": "Freeze", "not_before": cluster.later(minutes=14)}
    before = named if len(named) > 1 else ("db-1",)
    cluster.tell(cluster.vms[1].event("E-9", resources=before, now=cluster.now, **event))
    cluster.now += timedelta(seconds=2)
    started = {"transition": "started", "status": "Started", "resources": named}
    cluster.tell(cluster.vms[0].event("E-9", now=cluster.now, **event, **started))
    cluster.announce(2)
    assert cluster.step() == []
    assert cluster.state(2) == "waiting"
    ended = {**started, "transition": "ended", "status": "Completed"}
    cluster.wait(5)
    for vm in cluster.vms[:2]:
        cluster.tell(vm.event("E-9", now=cluster.now, **event, **ended))
    cluster.wait(1)
    assert cluster.step() == ["prepare db-2"]
    cluster.decisions.stop()


def test_a_vm_that_is_down_is_away_once_another_one_reports_the_start(database: Database) -> None:
    """If an event of two VMs has started, as one of them reports, the other one counts as away too
    until it is heard: two of three are away, and two may be.
    """
    cluster = TurnCluster(database, at_most=2, approve={"event_type": ["Reboot"]})
    event: dict[str, Any] = {"event_type": "Freeze", "not_before": cluster.later(minutes=14)}
    named = ("db-0", "db-1")
    cluster.tell(cluster.vms[1].event("E-9", resources=named, now=cluster.now, **event))
    cluster.now += timedelta(seconds=2)
    started = {"transition": "started", "status": "Started", "resources": named}
    cluster.tell(cluster.vms[0].event("E-9", now=cluster.now, **event, **started))
    cluster.announce(2)
    assert cluster.step() == []
    cluster.now += timedelta(seconds=90)
    cluster.hear()
    assert cluster.step() == ["prepare db-2"]  # db-1 is there, and reports nothing of the start
    cluster.decisions.stop()


def test_a_vm_outside_of_the_group_that_prepares_is_waited_for_for_two_minutes(
    database: Database,
) -> None:
    """A VM of no group that prepares may be the first to know that the event names it too: the
    group waits for the other reports, but for two minutes at most.
    """
    cluster = TurnCluster(database, match={"name": ["db-*"]})
    outside = FakeVm(name="web-0")
    soon = cluster.later(minutes=30)
    cluster.hear_only([*cluster.vms, outside])
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-0"]
    cluster.now += timedelta(seconds=1)
    both = {"resources": ["db-0", "web-0"], "not_before": soon}
    cluster.tell(outside.event("E-0", now=cluster.now, **both))
    cluster.says(0, "prepared")
    assert cluster.step() == []
    turn = cluster.known_event(0).turn
    assert turn is not None
    assert turn.reason == "the VMs that report it do not agree"
    cluster.now += timedelta(seconds=119)
    cluster.hear_only([*cluster.vms, outside])
    assert cluster.step() == []
    cluster.now += timedelta(seconds=2)
    assert cluster.step() == ["approve db-0"]
    cluster.decisions.stop()


@pytest.mark.parametrize("is_member", [True, False])
def test_a_vm_whose_report_came_before_that_of_an_older_document_is_waited_for(
    database: Database, *, is_member: bool
) -> None:
    """A VM reports that an event names it too, and after that another VM reports from an older
    document that it names one VM alone: the event waits for them to agree, for two minutes at most.
    """
    cluster = TurnCluster(database, match={"name": ["db-*"]})
    cluster.vms.sort(key=lambda vm: vm.vm_id)  # two reports count the same: the first VM's is shown
    late = cluster.vms[0]
    early = cluster.vms[1] if is_member else FakeVm(name="web-0")
    soon = cluster.later(minutes=30)
    cluster.hear_only([*cluster.vms, early])
    one: dict[str, Any] = {"resources": [late.name], "not_before": soon}
    both = one | {"resources": [late.name, early.name]}
    cluster.tell(early.event("E-0", now=cluster.now, **both))
    cluster.now += timedelta(seconds=1)
    cluster.tell(late.event("E-0", now=cluster.now, **one))
    assert cluster.known_event(0).shown.vm_id == late.vm_id
    assert cluster.step() == []
    cluster.now += timedelta(seconds=118)
    cluster.hear_only([*cluster.vms, early])
    assert cluster.step() == []
    cluster.now += timedelta(seconds=2)
    assert cluster.step() == [f"prepare {late.name}"]
    cluster.decisions.stop()
