from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from approving import EVENT_ID, OTHER_ID, Court, fails

from bridge.policy import Rule

MINE = Rule(name="mine", max_resources=2)
AFTER = Rule(name="after", after=("drain",))
APPROVED = [("accepted", None), ("posted", None)]


@pytest.fixture
def courts(tmp_path: Path) -> Iterator[Any]:
    """Makes courts, one directory each; all are closed."""
    made: list[Court] = []

    def make(*rules: Rule) -> Court:
        made.append(Court(tmp_path / str(len(made)), *rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_rule_approves_with_its_name_in_the_receipt(courts: Any) -> None:
    """What matches is approved on the poll that sees it, and the receipts name the rule."""
    court = courts(MINE)
    court.announce(resources=["web_3", "web_4"])
    assert court.imds.posts == [EVENT_ID]
    assert court.story() == APPROVED
    first = court.receipts()[0]
    assert (
        first["actor"],
        first["issuer"],
        first["evt"],
        first["resources"],
    ) == ("rule:mine", None, EVENT_ID, ["web_3", "web_4"])
    court.look()
    assert [*APPROVED, ("confirmed", None)] == court.story()
    assert len({each["jti"] for each in court.receipts()}) == 1


def test_a_rule_decides_once_about_one_state(courts: Any) -> None:
    """However often IMDS is looked at, and over restarts, there is one approval."""
    court = courts(MINE)
    court.imds.starts = False
    court.announce()
    for _ in range(3):
        court.look()
        court.restart()
    assert court.imds.posts == [EVENT_ID]
    assert court.story() == APPROVED


def test_too_many_vms_are_refused_with_one_receipt(courts: Any) -> None:
    """A refusal by max_resources is told once for each state of the event, over restarts too."""
    court = courts(MINE)
    court.announce(resources=["web_3", "web_4", "web_5"])
    court.look()
    court.restart()
    court.look()
    assert court.story() == [("rejected", "not_allowed")]
    assert court.receipts()[0]["resources"] == ["web_3", "web_4", "web_5"]
    court.change(Resources=["web_3", "web_4"])
    court.look()
    assert [("rejected", "not_allowed"), *APPROVED] == court.story()


def test_without_a_rule_nothing_happens(courts: Any) -> None:
    """No rule, no POST and no receipt."""
    court = courts()
    court.announce()
    court.look()
    assert (court.imds.posts, court.story()) == ([], [])


def test_an_acknowledgement_turns_waiting_into_approval(courts: Any) -> None:
    """The rule is asked at each look, so that an acknowledgement that comes later counts."""
    court = courts(AFTER)
    record = court.announce()
    court.look()
    assert court.story() == []
    court.acknowledged.add(record["id"])
    court.look()
    assert court.story() == APPROVED


def test_an_update_after_the_acknowledgement_has_to_be_acknowledged_too(courts: Any) -> None:
    """What was prepared for an older state of the event does not count."""
    court = courts(AFTER)
    record = court.announce()
    court.change(NotBefore="Mon, 02 Mar 2026 11:00:00 GMT")
    court.acknowledged.add(record["id"])
    court.look()
    assert court.story() == []
    court.acknowledged.add(court.record()["id"])
    court.look()
    assert court.story() == APPROVED


def test_an_acknowledgement_counts_over_a_restart(courts: Any) -> None:
    """What was acknowledged before a restart, or just after it, counts."""
    court = courts(AFTER)
    record = court.announce()
    court.restart()
    court.acknowledged.add(record["id"])
    court.look()
    assert court.story() == APPROVED


def test_time_alone_lets_the_next_vm_act(courts: Any) -> None:
    """While nothing changes at IMDS, the takeover comes with the clock, over a restart."""
    court = courts(Rule(name="lead", max_resources=2, leader_first=True, takeover=60))
    court.announce(resources=["web_4", "WEB_3"])
    court.look(after=50)
    court.restart()
    court.look(after=9)
    assert court.story() == []
    court.look(after=1)
    assert court.story() == APPROVED


def test_a_leader_that_acted_leaves_nothing_to_take_over(courts: Any) -> None:
    """Once the event has started, nobody takes over."""
    court = courts(Rule(name="lead", max_resources=2, leader_first=True, takeover=60))
    court.announce(resources=["web_4", "web_3"])
    court.change(EventStatus="Started", NotBefore="")
    court.look(after=61)
    assert (court.imds.posts, court.story()) == ([], [])


def test_a_rule_that_failed_is_asked_again_about_the_next_state(courts: Any) -> None:
    """What IMDS refused is not tried again, until the event is another one."""
    court = courts(MINE)
    court.imds.failures = [fails("http_400")]
    court.announce()
    court.look()
    assert court.story() == [("accepted", None), ("failed", "imds_refused")]
    court.change(Description="moved")
    court.look()
    assert court.story()[2:] == APPROVED


def test_each_event_is_decided_about_by_itself(courts: Any) -> None:
    """One event that waits holds up no other one."""
    court = courts(AFTER)
    court.announce()
    record = court.announce(OTHER_ID)
    court.acknowledged.add(record["id"])
    court.look()
    assert court.imds.posts == [OTHER_ID]
