"""The status of a command, and which receipts count for an event, from receipts as values."""

from __future__ import annotations

from typing import Any

import pytest
from support.console.decision_cases import AT, command, decision, receipt

from console.fleet.commands import (
    LAPSE_SECONDS,
    command_item,
    command_status,
    is_from_other_vm,
    own_receipts,
    receipts_that_count,
    under_way,
)
from console.fleet.values.event import NamedVm


def named(vm_id: str, **changes: Any) -> dict[str, NamedVm]:
    """Return a VM by its name, as an event names it: heard, and reporting the event as pending."""
    facts: dict[str, Any] = {
        "name_key": vm_id,
        "vm_id": vm_id,
        "contact": "heard",
        "heard_at": AT,
        "command_source": "broker",
        "pulled_at": None,
        "content_hash": "hash",
        "is_over": False,
        "name_since": AT,
        "site": "default",
    }
    return {vm_id: NamedVm(**(facts | changes))}


def test_only_receipts_of_the_commands_own_vm_and_of_known_states_are_its_own() -> None:
    """A receipt belongs to a command if the VM that was asked sent it, with a state that a command
    can have.
    """
    own = receipt("accepted")
    others = [
        receipt("accepted", vm_id="vm-2", jti="jti of vm-1"),
        receipt("accepted", jti="another"),
        receipt("unheard_of"),
    ]
    assert own_receipts(command(), [*others, own]) == [own]


def test_a_receipt_is_foreign_if_another_vm_answers_a_command() -> None:
    """A receipt of another VM than the one that was asked is foreign; one of a command that is not
    from this console is not.
    """
    commands = [command("vm-1")]
    assert is_from_other_vm(receipt("accepted", vm_id="vm-2", jti="jti of vm-1"), commands)
    assert not is_from_other_vm(receipt("accepted"), commands)
    assert not is_from_other_vm(receipt("accepted", vm_id="vm-2", jti="a rule's"), commands)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sent_at": None}, ("sent", AT)),
        ({"sent_at": AT + 2}, ("sent", AT + 2)),
        ({"unanswered_at": AT + 10}, ("unanswered", AT + 10)),
    ],
)
def test_a_command_without_a_receipt_is_sent_or_unanswered(
    changes: dict[str, Any], expected: tuple[str, float]
) -> None:
    """Without a receipt, a command is `sent` since it was sent, or else made; or `unanswered` since
    the console gave up waiting.
    """
    status = command_status(command(**changes), [])
    assert (status.state, status.at, status.reason) == (*expected, None)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["accepted", "posted"], "posted"),
        (["posted", "accepted"], "posted"),
        (["accepted", "rejected"], "accepted"),
        (["posted", "failed"], "failed"),
        (["failed", "confirmed"], "confirmed"),
    ],
)
def test_the_receipt_that_goes_furthest_counts(states: list[str], expected: str) -> None:
    """The state that goes furthest counts, in whatever order the receipts came in; the rejection of
    a copy does not undo an acceptance.
    """
    receipts = [receipt(state, after=number) for number, state in enumerate(states)]
    assert command_status(command(), receipts).state == expected


def test_of_several_rejections_the_first_that_is_not_of_a_copy_counts() -> None:
    """A rejection as `replayed` says nothing of the command, so another reason counts before it,
    and of several others the first.
    """
    receipts = [
        receipt("rejected", "replayed", after=1),
        receipt("rejected", "expired", after=2),
        receipt("rejected", "unknown_event", after=3),
    ]
    status = command_status(command(), receipts)
    assert (status.reason, status.at) == ("expired", AT + 2)
    assert command_status(command(), receipts[:1]).reason == "replayed"


def test_an_approval_that_a_vm_has_begun_and_not_ended_is_working() -> None:
    """For each command of each VM only the newest state counts: a VM that has failed works no
    more.
    """
    begun = receipt("posted", after=2)
    ended = receipt("failed", "timeout", vm_id="vm-2", after=2)
    receipts = [receipt("accepted"), begun, receipt("accepted", vm_id="vm-2"), ended]
    assert under_way(receipts) == [begun]


def test_an_acceptance_lapses_while_the_event_is_scheduled() -> None:
    """An acceptance counts until 15 minutes after its command has expired if the event is Scheduled
    then; a POST counts for longer, and a started event keeps both.
    """
    asked = command()
    receipts = [receipt("accepted"), receipt("posted")]
    limit = asked.expires_at + LAPSE_SECONDS
    for scheduled_at, expected in ((limit, receipts), (limit + 1, receipts[1:]), (None, receipts)):
        assert receipts_that_count(receipts, {}, [asked], scheduled_at=scheduled_at) == expected


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ({}, False),
        ({"contact": "silent"}, True),
        ({"content_hash": None}, True),
        ({"is_over": True}, True),
    ],
)
def test_a_receipt_that_was_not_asked_for_counts_unless_another_vm_contradicts_it(
    other: dict[str, Any], counts: bool
) -> None:
    """A receipt of a named VM that was not asked, such as one of its rule, counts unless another
    heard VM that the event names still reports the event as pending.
    """
    receipts = [receipt("accepted", jti="a rule's")]
    both = named("vm-1") | named("vm-2", **other)
    assert receipts_that_count(receipts, both, [], scheduled_at=AT) == (receipts if counts else [])
    assert receipts_that_count(receipts, named("vm-1"), [], scheduled_at=AT) == receipts
    assert receipts_that_count(receipts, named("vm-2", is_over=True), [], scheduled_at=AT) == []


def test_the_history_of_a_command_has_its_states_in_order() -> None:
    """A command's history begins with `sent` and leaves out rejections of copies; a command that
    was only rejected shows that.
    """
    receipts = [receipt("accepted", after=1), receipt("rejected", "replayed", after=2)]
    receipts.append(receipt("posted", after=3))
    item = command_item(command(), receipts)
    assert [step.state for step in item.history] == ["sent", "accepted", "posted"]
    assert (item.state, item.reason) == ("posted", None)
    refused = command_item(command(), [receipt("rejected", "expired")])
    assert [step.state for step in refused.history] == ["sent", "rejected"]
    assert (refused.state, refused.reason) == ("rejected", "expired")


def test_the_history_of_a_command_ends_with_what_no_receipt_says() -> None:
    """A command that nobody answered ends as unanswered; one whose last receipt was lost is
    confirmed by its decision.
    """
    silent = command_item(command(unanswered_at=AT + 10), [])
    assert [(step.state, step.at) for step in silent.history] == [
        ("sent", AT),
        ("unanswered", AT + 10),
    ]
    posted = [receipt("accepted"), receipt("posted", after=2)]
    over = decision(state="over", outcome="confirmed", over_at=AT + 5)
    confirmed = command_item(command(), posted, over)
    assert (confirmed.state, confirmed.history[-1].at) == ("confirmed", AT + 5)
    assert [step.state for step in confirmed.history][-2:] == ["posted", "confirmed"]
    failed = decision(state="over", outcome="failed", over_at=AT + 5)
    assert command_item(command(), posted, failed).state == "posted"
