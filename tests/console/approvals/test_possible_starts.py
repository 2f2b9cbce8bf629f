"""As long as a VM may have told Azure to start an event, that VM counts as away."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import EventOfTwo, TurnCluster

from console.approvals.refusal_reasons import DecisionRefusedError
from console.db.connection.opening import Database
from wire.moment import rfc3339

pytestmark = ON_SQLITE


@pytest.mark.parametrize(
    "ended_by", ["confirmed", "a rule", "its start", "imds_unreachable", "its end"]
)
def test_an_event_that_returns_does_not_have_its_former_approval(
    cluster: TurnCluster, ended_by: str
) -> None:
    """An event that returns is approved anew. If its VM does not answer for some minutes, the next
    event gets its turn first.
    """
    soon = cluster.later(hours=10)
    later = cluster.later(hours=11)
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.wait(1)
    if ended_by == "confirmed":
        cluster.approved("accepted", "posted", "confirmed")
    elif ended_by == "a rule":
        cluster.approved("accepted", "posted", "confirmed", actor="rule:patching")
    elif ended_by == "imds_unreachable":
        cluster.approved("accepted", "failed", reason="imds_unreachable")
    else:
        cluster.approved()
    cluster.wait(1)
    if ended_by != "its end":
        started = cluster.vms[0].event("E-0", transition="started", now=cluster.now)
        cluster.tell(started)
        cluster.wait(75)
        cluster.decide()
    cluster.step()
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(75)
    cluster.decide()
    cluster.says(0, "recovered")
    cluster.wait(5)
    cluster.step()
    assert cluster.state(0) == "over"
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=later))
    assert cluster.step() == ["prepare db-0"]
    assert cluster.known_event(0).decided.decision is None
    sent = []
    for _ in range(50):
        cluster.wait(10)
        sent += cluster.decide() + cluster.step()
    assert sent[-1] == "prepare db-1"
    cluster.answer("failed", number=1, reason="unknown_event")
    cluster.tell(cluster.vms[1].event("E-1", transition="ended", now=cluster.now))
    for _ in range(40):
        cluster.wait(10)
        sent += cluster.decide() + cluster.step()
    assert sent[-1] == "prepare db-0"


def test_what_is_approved_on_a_vm_counts_for_the_others(database: Database) -> None:
    """If somebody on the VM approves an event that the group leaves to people, the next event
    waits, because Azure may start the first one at any time.
    """
    cluster = TurnCluster(database, approve={"event_type": ["Freeze"]})
    cluster.announce(0)
    for state in ("accepted", "posted"):
        receipt = cluster.vms[0].receipt(
            "E-0", state, jti="own", actor="local:root", now=cluster.now
        )
        cluster.tell(receipt)
    soon = cluster.later(hours=1)
    freeze = cluster.vms[1].event("E-1", event_type="Freeze", now=cluster.now, not_before=soon)
    cluster.tell(freeze)
    assert cluster.step() == []
    cluster.end(0)
    cluster.wait(1)
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize(
    ("state", "reason", "is_held"),
    [
        ("accepted", None, True),
        ("posted", None, True),
        ("confirmed", None, True),
        ("failed", "imds_unreachable", True),
        ("failed", "expired", False),
    ],
)
def test_a_vm_that_may_have_posted_by_a_rule_holds_its_turn(
    database: Database, state: str, reason: str | None, *, is_held: bool
) -> None:
    """A VM that may have posted by its rule holds its turn: Azure may start the event, which also
    names a VM that does not answer, at any time.
    """
    cluster = TurnCluster(database, at_most=2)
    cluster.vms.append(FakeVm(name="db-3"))
    cluster.hear_of(range(3), prepares=False)
    cluster.hear_of(range(3, 4), prepares=True)
    soon = cluster.now + timedelta(hours=1)
    for number in (0, 3):
        more = {"resources": ("db-0", "db-3"), "not_before": rfc3339(soon), "now": cluster.now}
        cluster.tell(cluster.vms[number].event("E-0", **more))
    later = rfc3339(soon + timedelta(minutes=5))
    cluster.tell(cluster.vms[1].event("E-1", not_before=later, now=cluster.now))
    assert cluster.step() == ["prepare db-3"]
    by_a_rule = {"jti": "by-a-rule", "actor": "rule:patching", "now": cluster.now}
    for each, why in dict.fromkeys([("accepted", None), (state, reason)]):
        cluster.tell(cluster.vms[0].receipt("E-0", each, reason=why, **by_a_rule))
    sent = []
    for _ in range(7):
        cluster.now += timedelta(seconds=60)
        cluster.hear_of(range(3), prepares=False)
        cluster.hear_of(range(3, 4), prepares=True)
        sent += cluster.decide() + cluster.step()
    assert cluster.state(0) == "failed"
    assert ("approve db-1" not in sent) == is_held
    cluster.decisions.stop()


def test_a_turn_whose_event_was_posted_lasts_while_its_scope_becomes_known(
    database: Database,
) -> None:
    """A turn lasts if its VM, which prepares nothing, has posted and then learns its scope: Azure
    may start the event at any time.
    """
    cluster = TurnCluster(database)
    vm = cluster.vms[0] = FakeVm(name="db-3", subscription=None, group=None)
    cluster.hear_of([0], prepares=False)
    soon = cluster.later(hours=1)
    cluster.tell(vm.event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["approve db-3"]
    cluster.deliver()
    jti = cluster.known_event(0).decided.commands[-1].jti
    for state in ("accepted", "posted"):
        cluster.tell(vm.receipt("E-0", state, jti=jti, actor="group:db", now=cluster.now))
    cluster.tell(cluster.vms[1].event("E-1", now=cluster.now, not_before=soon))
    vm.subscription, vm.group = cluster.vms[1].subscription, cluster.vms[1].group
    sent = []
    for _ in range(6):
        cluster.now += timedelta(seconds=10)
        cluster.hear_of([0], prepares=False)
        sent += cluster.step() + cluster.decide()
    assert sent == []


@pytest.mark.parametrize("actor", ["group:db", "rule:patching"])
@pytest.mark.parametrize("ended", ["Unknown", "Canceled", "Completed", "Started"])
def test_what_azure_was_just_told_to_start_may_be_left_out_of_one_document(
    cluster: TurnCluster, ended: str, actor: str
) -> None:
    """If one document leaves out an event that Azure was just told to start, its turn lasts for ten
    more seconds, unless the event was seen to start.
    """
    soon = cluster.later(minutes=15)
    cluster.hear_of(range(3), prepares=False)
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["approve db-0"]
    cluster.deliver()
    (command,) = cluster.known_event(0).decided.commands
    jti = command.jti if actor == "group:db" else "by-a-rule"
    for state in ("accepted", "posted"):
        receipt = cluster.vms[0].receipt("E-0", state, jti=jti, actor=actor, now=cluster.now)
        cluster.tell(receipt)
    if actor != "group:db":
        receipt = cluster.vms[0].receipt(
            "E-0", "failed", jti=command.jti, actor="group:db", now=cluster.now, reason="decided"
        )
        cluster.tell(receipt)
    cluster.decide()
    cluster.now += timedelta(seconds=1)
    if ended == "Started":
        started = cluster.vms[0].event("E-0", transition="started", now=cluster.now)
        cluster.tell(started)
        cluster.step()
    status = "Unknown" if ended == "Started" else ended
    over = cluster.vms[0].event("E-0", transition="ended", status=status, now=cluster.now)
    cluster.tell(over)
    cluster.hear_of(range(3), prepares=False)
    is_held = ended in ("Unknown", "Canceled")
    sent = cluster.decide() + cluster.step()
    assert sent == ([] if is_held else ["approve db-1"])
    if not is_held:
        return
    cluster.now += timedelta(seconds=5)
    cluster.hear_of(range(3), prepares=False)
    assert cluster.decide() + cluster.step() == []
    if ended == "Canceled":
        more = {"transition": "started", "not_before": soon, "now": cluster.now}
        cluster.tell(cluster.vms[0].event("E-0", **more))
    cluster.now += timedelta(seconds=10)
    cluster.hear_of(range(3), prepares=False)
    assert cluster.decide() + cluster.step() == ([] if ended == "Canceled" else ["approve db-1"])


def test_what_a_vm_accepted_and_never_ended_lapses(pair: EventOfTwo) -> None:
    """An acceptance of a VM that is gone since counts for 15 minutes after its command has expired;
    then another VM is asked.
    """
    cluster = pair.cluster
    pair.approve()
    (asked,) = [each for each in cluster.known_event(0).decided.commands if each.act == "approve"]
    (number,) = [n for n, vm in enumerate(cluster.vms) if vm.vm_id == asked.vm_id]
    gone = cluster.vms[number]
    cluster.tell(gone.receipt("E-0", "accepted", jti=asked.jti, actor="group:db", now=cluster.now))
    assert cluster.decide() == []
    cluster.lose(number)
    cluster.vms.remove(gone)
    cluster.wait(600)
    assert cluster.decide() == []
    with pytest.raises(DecisionRefusedError, match="approved already"):
        cluster.approve(0, force=True)
    cluster.wait(400)
    (other,) = [f"db-{n}" for n in (0, 1) if f"db-{n}" != gone.name]
    assert cluster.decide() == [f"approve {other}"]


def test_a_retired_vm_approves_nothing_any_more(pair: EventOfTwo) -> None:
    """If a VM that had accepted is retired, a person may approve the event on another VM."""
    cluster = pair.cluster
    answer = pair.approve()
    number = int(answer[-1])
    (command,) = cluster.known_event(0).decided.commands
    more = {"jti": command.jti, "actor": "group:db", "now": cluster.now}
    cluster.tell(cluster.vms[number].receipt("E-0", "accepted", **more))
    gone = cluster.vms.pop(number)
    with cluster.database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE vm SET retired_at = {cluster.now.timestamp() + 1} WHERE name = '{gone.name}'"
        )
    cluster.wait(100)
    with pytest.raises(DecisionRefusedError) as refused:
        cluster.approve(0, force=True)
    assert refused.value.reason == "under_way"
    cluster.wait(900)
    cluster.decide()
    cluster.step()
    cluster.approve(0, force=True)


def test_a_vm_whose_status_comes_before_its_receipts_holds_its_turn(database: Database) -> None:
    """A VM that has told Azure to start its event, and whose link is gone until its command has
    expired, still counts as away when its status comes before its receipts.
    """
    cluster = TurnCluster(database)
    cluster.approved_without_preparing()
    posted_at = cluster.now
    (asked,) = cluster.known_event(0).decided.commands
    sent = []
    for _ in range(20):
        cluster.now += timedelta(seconds=5)
        cluster.hear_of((1, 2), prepares=False)
        sent += cluster.step() + cluster.decide()
    assert cluster.state(0) == "failed"
    vm = cluster.vms[0]
    cluster.status(vm, vm.status(commands=True, prepares=False, time=rfc3339(cluster.now)))
    sent += cluster.step()
    cluster.now += timedelta(seconds=1)
    for state in ("accepted", "posted"):
        cluster.tell(vm.receipt("E-0", state, jti=asked.jti, actor="group:db", now=posted_at))
    for _ in range(20):
        cluster.now += timedelta(seconds=5)
        cluster.hear_of(range(3), prepares=False)
        sent += cluster.step() + cluster.decide()
    assert "approve db-1" not in sent


def test_a_vm_that_answers_again_and_has_done_nothing_is_back(database: Database) -> None:
    """A VM whose approval failed unanswered is back soon after it is heard again."""
    cluster = TurnCluster(database)
    cluster.approved_without_preparing()
    sent = []
    for heard in (*[(1, 2)] * 20, *[(0, 1, 2)] * 4):
        cluster.now += timedelta(seconds=5)
        cluster.hear_of(heard, prepares=False)
        sent += cluster.step() + cluster.decide()
    assert "approve db-1" in sent


def test_a_vm_whose_answer_from_azure_was_lost_holds_its_turn(cluster: TurnCluster) -> None:
    """A VM that got no answer from Azure before its event changed counts as away, however often the
    event changes: Azure may start it.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.approved("accepted")
    for minutes in (30, 40, 50):
        cluster.wait(5)
        cluster.change(0, not_before=cluster.later(minutes=minutes))
        if minutes == 30:
            (asked,) = cluster.known_event(0).decided.commands
            about = {"jti": asked.jti, "actor": "group:db", "reason": "imds_unreachable"}
            cluster.tell(cluster.vms[0].receipt("E-0", "failed", now=cluster.now, **about))
        assert "approve db-1" not in cluster.step() + cluster.decide()
    cluster.says(0, "recovered")
    sent = []
    for _ in range(60):
        cluster.wait(10)
        sent += cluster.step() + cluster.decide()
    assert "approve db-1" not in sent
    assert "prepare db-1" not in sent


@pytest.mark.parametrize(
    ("expected", "reason", "seconds"),
    [
        (["accepted"], None, 60),
        (["accepted", "failed"], "imds_unreachable", 10),
        (["accepted", "failed"], "imds_refused", 10),
        (["accepted", "failed"], "unknown_event", 0),
        (["accepted", "posted"], None, 10),
        (["accepted", "confirmed"], None, 10),
    ],
)
def test_an_event_that_a_document_leaves_out_may_still_start(
    cluster: TurnCluster, expected: list[str], reason: str | None, seconds: int
) -> None:
    """After the end of an event whose VM may have told Azure to start it, no other VM is asked to
    prepare for a while, because the event may come back and start.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("confirmed")
    cluster.approved(*expected, reason=reason)
    cluster.now += timedelta(seconds=1)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", status="Unknown", now=cluster.now))
    cluster.says(0, "recovered")
    before = max(seconds - 3, 0)
    cluster.wait(before)
    assert (cluster.step() == []) == (seconds > 0)
    cluster.wait(4)
    assert cluster.step() == (["prepare db-1"] if seconds else [])


def test_an_approved_event_that_is_back_at_once_may_still_start(cluster: TurnCluster) -> None:
    """An event that a document leaves out for a moment, after Azure was told to start it, may start
    in the next seconds, also if it is back before the console's next step.
    """
    cluster.approved_without_preparing("accepted", "posted")
    vm, soon = cluster.vms[0], cluster.later(minutes=15)
    (asked,) = cluster.known_event(0).decided.commands
    cluster.tell(vm.event("E-0", transition="ended", status="Scheduled", now=cluster.now))
    cluster.tell(vm.receipt("E-0", "confirmed", jti=asked.jti, actor="group:db", now=cluster.now))
    cluster.decide()
    cluster.now += timedelta(seconds=0.3)
    cluster.tell(vm.event("E-0", not_before=soon, now=cluster.now))
    for _ in range(9):
        assert cluster.step() == []
        cluster.now += timedelta(seconds=1)
        cluster.hear_of(range(3), prepares=False)
