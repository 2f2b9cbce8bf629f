"""A command to prepare counts as long as a VM may follow it, also after its turn has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.empty_database import ON_SQLITE
from support.console.records import FakeVm
from support.console.turn_cluster import TurnCluster

pytestmark = ON_SQLITE


def test_after_the_end_of_a_turn_its_command_counts_until_it_has_expired(
    cluster: TurnCluster,
) -> None:
    """After a turn has ended, no other VM is asked until the command has expired, because the
    broker may still deliver it.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.end_turn(0, force=True)
    assert cluster.step() == []
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]


def test_a_turn_lasts_until_no_vm_can_follow_its_commands_any_more(cluster: TurnCluster) -> None:
    """A turn whose event is missing from a document lasts until its commands have expired: the
    event may come back unchanged before that.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.end(0)
    cluster.wait(5)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.wait(66)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_has_accepted_may_follow_until_its_word_comes(cluster: TurnCluster) -> None:
    """A VM that has accepted counts as away until it reports, because its receipt may arrive by a
    faster way than its records.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.answer("accepted")
    cluster.end(0)
    cluster.wait(71)
    assert cluster.step() == []
    cluster.answer("failed", reason="unknown_event")
    assert cluster.step() == ["prepare db-1"]


def ended_by_force(cluster: TurnCluster) -> None:
    """Let the first VM accept its command, then end its turn as a person; the second VM waits."""
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("accepted")
    cluster.end_turn(0, force=True)


def test_a_vm_that_has_accepted_a_command_counts_after_the_end_of_its_turn(
    cluster: TurnCluster,
) -> None:
    """A VM that accepted a command counts as away after its turn has ended: it prepares, and its
    records may come later than its receipt.
    """
    ended_by_force(cluster)
    for _ in range(4):
        assert cluster.step() == []
        cluster.wait(71)
    cluster.says(0, "prepared")
    assert cluster.step() == []
    cluster.end(0)
    cluster.says(0, "recovered")
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize("how", ["an hour", "failed", "a new store"])
def test_a_vm_that_has_accepted_a_command_does_not_count_for_ever(
    cluster: TurnCluster, how: str
) -> None:
    """A VM that accepted a command stops counting as away if it reports nothing for an hour,
    reports that it does not follow the command, or has lost its store.
    """
    soon = cluster.later(hours=10)
    for number in (0, 1):
        cluster.tell(cluster.vms[number].event(f"E-{number}", now=cluster.now, not_before=soon))
    cluster.step()
    cluster.answer("accepted")
    cluster.end_turn(0, force=True)
    cluster.wait(71)
    assert cluster.step() == []
    if how == "an hour":
        cluster.wait(3600)
    elif how == "failed":
        cluster.answer("failed", reason="event_changed")
    else:
        new = cluster.vms[0] = FakeVm(name="db-0", stream="another", session="another")
        cluster.tell(new.event("E-0", now=cluster.now, not_before=soon))
    assert cluster.step() == ["prepare db-1"]


@pytest.mark.parametrize("is_ended", [False, True], ids=["over", "ended by a person"])
def test_that_a_copy_was_refused_is_no_answer(cluster: TurnCluster, *, is_ended: bool) -> None:
    """If a VM has accepted the command, the rejection of a copy does not end the wait for its
    report.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("accepted")
    cluster.answer("rejected", reason="replayed")
    if is_ended:
        cluster.end_turn(0, force=True)
    else:
        cluster.end(0)
        cluster.wait(71)
    assert cluster.step() == []


def test_a_command_that_is_followed_in_its_last_second_counts_until_the_first_word(
    cluster: TurnCluster,
) -> None:
    """A command that a VM follows in its last second counts until the VM's first report, even if a
    person has ended the turn before.
    """
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.end_turn(0, force=True)
    cluster.wait(59)
    cluster.answer("accepted")
    cluster.now += timedelta(seconds=5)
    assert cluster.step() == []
    cluster.says(0, "preparing")
    cluster.wait(20)
    assert cluster.step() == []
    assert cluster.state(1) == "waiting"


@pytest.mark.parametrize("reason", ["unknown_event", "event_changed", "expired"])
def test_a_command_that_was_refused_may_come_again_and_be_followed(
    cluster: TurnCluster, reason: str
) -> None:
    """If a document left the event out when the first copy of a command came, a second copy may be
    followed while it is valid.
    """
    cluster.announce(0)
    cluster.announce(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(11)
    assert cluster.step() == ["prepare db-0"]
    cluster.answer("rejected", reason=reason)
    cluster.end(0)
    for _ in range(5):
        cluster.wait(10)
        assert cluster.step() == []
    cluster.wait(22)
    assert cluster.step() == ["prepare db-1"]


def test_what_a_vm_says_of_an_earlier_stay_of_the_event_answers_no_command(
    cluster: TurnCluster,
) -> None:
    """A recovery from the first stay of the event does not answer the command of the second one,
    even if the event is missing at that moment.
    """
    soon = cluster.later(minutes=15)
    cluster.announce(0)
    cluster.announce(1)
    cluster.step()
    cluster.answer("accepted")
    cluster.answer("confirmed")
    cluster.says(0, "prepared")
    cluster.lose(2)
    cluster.wait(11)
    cluster.lose(2)
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.step()
    cluster.tell(cluster.vms[0].event("E-0", now=cluster.now, not_before=soon))
    cluster.wait(1)
    assert cluster.step() == ["prepare db-0"]
    cluster.wait(1)
    cluster.says(0, "recovered")
    cluster.tell(cluster.vms[0].event("E-0", transition="ended", now=cluster.now))
    cluster.wait(1)
    assert cluster.step() == []
    assert cluster.state(0) == "away"
    cluster.wait(71)
    assert cluster.step() == ["prepare db-1"]


def test_a_vm_that_was_cut_off_with_its_command_counts_until_its_records_come(
    cluster: TurnCluster,
) -> None:
    """A VM that was silent counts as away for some seconds after it is heard again: its status
    arrives first, and its records may say that it has followed the command to prepare.
    """
    soon = cluster.later(hours=10)
    for number in (0, 1):
        record = cluster.vms[number].event(f"E-{number}", now=cluster.now, not_before=soon)
        cluster.tell(record)
    assert cluster.step() == ["prepare db-0"]
    for _ in range(50):
        cluster.now += timedelta(seconds=10)
        cluster.hear_only(cluster.vms[1:])
        assert "prepare db-1" not in cluster.step()
    assert cluster.state(0) == "failed"
    cluster.hear()
    assert cluster.step() == []
    cluster.now += timedelta(seconds=5)
    cluster.answer("accepted")
    cluster.says(0, "prepared")
    assert cluster.step() == []


def test_a_vm_that_prepares_after_its_turn_has_failed_holds_it_again(cluster: TurnCluster) -> None:
    """A VM that prepares by itself after its turn has failed, and while another VM has its turn,
    holds its turn again: the VMs that are drained go one after the other.
    """
    for number in (0, 1):
        record = cluster.vms[number].event(
            f"E-{number}", now=cluster.now, not_before=cluster.later(minutes=320 + number)
        )
        cluster.tell(record)
    assert cluster.step() == ["prepare db-0"]
    for _ in range(44):
        cluster.wait(10)
        cluster.step()
    assert (cluster.state(0), cluster.state(1)) == ("failed", "preparing")
    cluster.says(0, "prepared")
    cluster.says(1, "prepared")
    sent: list[str] = []
    for _ in range(20):
        cluster.wait(30)
        sent += [each for each in cluster.step() if each.startswith("approve")]
    assert sent == ["approve db-0"]
