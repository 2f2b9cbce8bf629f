"""What is done next for a decision: who is asked, when the next one is, and how it ends."""

from __future__ import annotations

import pytest
from support.console.decision_cases import AT, candidate, command, decision, receipt, situation

from console.approvals import decision_requests, turn_requests
from console.approvals.decision_situation import (
    END_SECONDS,
    GRACE_SECONDS,
    AskVm,
    EndDecision,
    SendCommand,
    ShownEvent,
    WaitForChange,
    expiry,
)
from console.approvals.refusal_reasons import REASONS
from console.approvals.transitions import TABLE, DecisionStage, always, next_step, printed
from console.fleet.commands import LAPSE_SECONDS

STARTED = ShownEvent(state="started", fingerprint="sha256:2")
CHANGED = ShownEvent(state="scheduled", fingerprint="sha256:2")
ENDED = ShownEvent(state="ended", fingerprint="sha256:3")
OTHERS = "jti of a rule"


def receipt_of_rule(state: str, vm_id: str = "vm-9") -> object:
    """Return what a VM reports of an approval by its own rule."""
    return receipt(state, vm_id=vm_id, jti=OTHERS, actor="rule:quick")


def test_a_token_is_short_while_another_reporter_could_be_asked() -> None:
    """If another reporter could be asked next, a token ends before that; no token is valid long
    after notBefore.
    """
    assert expiry(AT + 0.9, AT + 600, others=True) == AT + 8
    assert expiry(AT, AT + 600, others=False) == AT + 60
    assert expiry(AT, None, others=False) == AT + 60
    assert expiry(AT, AT + 20, others=False) == AT + 28
    assert expiry(AT, AT - 50, others=False) == AT + 8


def test_the_next_reporter_is_asked_after_ten_seconds() -> None:
    """The next reporter is asked after ten seconds. It is one that was not asked yet, and its token
    is short if more are left.
    """
    assert next_step(situation(command(), after=9)) == WaitForChange(until=AT + 10)
    step = next_step(situation(command(), after=10))
    assert step == AskVm(candidate=candidate("vm-2"), expires_at=AT + 70)
    three = [candidate(f"vm-{n}") for n in (1, 2, 3)]
    step = next_step(situation(command(), after=10, candidates=three))
    assert step == AskVm(candidate=candidate("vm-2"), expires_at=AT + 18)


def test_no_second_command_while_the_first_is_good() -> None:
    """The token for the only reporter lives longer. A reporter that is heard later is asked only
    once that token has expired.
    """
    alone = command(expires_at=AT + 60)
    assert next_step(situation(alone, after=59)) == WaitForChange(until=AT + 60)
    assert isinstance(next_step(situation(alone, after=60)), AskVm)


@pytest.mark.parametrize(
    "expected",
    [
        receipt("accepted"),
        receipt("posted"),
        receipt("rejected", "expired"),
        receipt("rejected", "replayed"),
        receipt("failed", "imds_refused"),
        receipt_of_rule("accepted"),
        receipt_of_rule("posted"),
    ],
    ids=lambda each: f"{each.content.state} {each.content.reason or each.content.actor}",
)
def test_no_takeover_once_any_vm_has_answered(expected: object) -> None:
    """No second VM is asked once any VM has reported anything: the VM that was asked, or another
    one for its rule.
    """
    for after in (10, 12, 30, 300):
        step = next_step(situation(command(), after=after, receipts=[expected]))
        assert not isinstance(step, (AskVm, SendCommand)), step


@pytest.mark.parametrize("event", [STARTED, CHANGED, ENDED, None])
def test_no_takeover_of_an_event_that_has_moved(event: ShownEvent | None) -> None:
    """If the event has changed, the decision waits for a late answer and is then overtaken; no
    second VM is asked.
    """
    late = AT + 8 + GRACE_SECONDS
    assert next_step(situation(command(), after=12, event=event)) == WaitForChange(until=late)
    step = next_step(situation(command(), after=18, event=event))
    words = {"started": "started", "scheduled": "changed", "ended": "ended"}
    assert step == EndDecision(outcome="overtaken", reason=words[event.state] if event else "ended")


@pytest.mark.parametrize("since", [None, AT + 9])
def test_a_deaf_console_asks_no_second_vm(since: float | None) -> None:
    """No second VM is asked while the first one's source is not connected, or was connected only a
    moment ago: a receipt may be waiting there.
    """
    deaf = situation(command(), after=11, connected={"broker": since})
    assert next_step(deaf) == WaitForChange(until=AT + 12)


def test_a_late_receipt_of_the_first_counts() -> None:
    """If the first VM's receipt comes late, and the second VM has found the event started, the
    event was approved once.
    """
    commands = [command(), command("vm-2", made_at=AT + 10, sent_at=AT + 10, expires_at=AT + 70)]
    receipts = [receipt("accepted", after=9), receipt("rejected", "already_started", vm_id="vm-2")]
    step = next_step(situation(*commands, after=20, receipts=receipts))
    assert step == WaitForChange(until=AT + 70 + LAPSE_SECONDS + 1)
    receipts.append(receipt("confirmed", after=21))
    assert next_step(situation(*commands, after=22, receipts=receipts)) == EndDecision(
        outcome="confirmed"
    )


def test_a_rejection_waits_for_the_other_vm() -> None:
    """If the first VM rejects a command that came too late, the decision waits for the second VM's
    answer.
    """
    commands = [command(), command("vm-2", made_at=AT + 10, sent_at=AT + 10, expires_at=AT + 18)]
    receipts = [receipt("rejected", "expired", after=11)]
    assert next_step(situation(*commands, after=12, receipts=receipts)) == WaitForChange(
        until=AT + 28
    )
    step = next_step(situation(*commands, after=28, receipts=receipts))
    assert step == EndDecision(outcome="rejected", reason="expired")


@pytest.mark.parametrize("state", ["failed", "rejected"])
def test_an_answer_is_the_end(state: str) -> None:
    """A final receipt ends the decision at once, with the receipt's reason."""
    receipts = [receipt(state, "event_changed")]
    step = next_step(situation(command(), after=1, receipts=receipts))
    assert step == EndDecision(outcome=state, reason="event_changed")


def test_the_copy_that_was_refused_undoes_nothing() -> None:
    """After `replayed` alone the decision waits; after an acceptance `replayed` has no meaning."""
    refused = receipt("rejected", "replayed", after=2)
    assert next_step(situation(command(), after=3, receipts=[refused])) == WaitForChange(
        until=AT + 18
    )
    step = next_step(situation(command(), after=18, receipts=[refused]))
    assert step == EndDecision(outcome="rejected", reason="replayed")
    late = receipt("rejected", "expired", after=3)
    receipts = [receipt("accepted"), refused, late]
    assert isinstance(next_step(situation(command(), after=4, receipts=receipts)), WaitForChange)
    receipts.append(receipt("confirmed", after=5))
    assert next_step(situation(command(), after=6, receipts=receipts)) == EndDecision(
        outcome="confirmed"
    )


def test_another_vms_word_about_a_command_is_nothing() -> None:
    """Only a receipt from the VM that was asked counts: another VM can neither confirm nor stop the
    command.
    """
    forged = [receipt("confirmed", vm_id="vm-3", jti=command().jti)]
    assert next_step(situation(command(), after=9, receipts=forged)) == WaitForChange(until=AT + 10)
    assert isinstance(next_step(situation(command(), after=10, receipts=forged)), AskVm)


def test_nobody_answers() -> None:
    """Without another reporter the decision ends as unanswered once no receipt can come
    any more.
    """
    alone = situation(command(expires_at=AT + 60), after=69, candidates=[candidate("vm-1")])
    assert next_step(alone) == WaitForChange(until=AT + 70)
    alone = situation(command(expires_at=AT + 60), after=70, candidates=[candidate("vm-1")])
    assert next_step(alone) == EndDecision(outcome="unanswered", reason="no_answer")


def test_what_was_accepted_is_waited_for_beyond_its_time() -> None:
    """A decision waits for a VM that has accepted, also over its reboot, but not for ever."""
    receipts = [receipt("accepted")]
    waiting = situation(command(), after=700, receipts=receipts, event=STARTED)
    assert next_step(waiting) == WaitForChange(until=AT + 600 + END_SECONDS)
    late = situation(command(), after=600 + END_SECONDS, receipts=receipts, event=ENDED)
    assert next_step(late) == EndDecision(outcome="unanswered", reason="no_end")


@pytest.mark.parametrize("event", [STARTED, ENDED, None])
def test_a_last_receipt_that_was_lost_is_not_missed(event: ShownEvent | None) -> None:
    """If Azure took the request and the event has begun, the decision is confirmed although the
    last receipt was lost.
    """
    receipts = [receipt("accepted"), receipt("posted", after=3)]
    waiting = situation(command(), after=12, receipts=receipts, event=event)
    assert next_step(waiting) == WaitForChange(until=AT + 3 + GRACE_SECONDS)
    late = situation(command(), after=13, receipts=receipts, event=event)
    assert next_step(late) == EndDecision(outcome="confirmed")
    pending = situation(command(), after=300, receipts=receipts)
    assert next_step(pending) == WaitForChange(until=AT + 600 + END_SECONDS)


def test_an_unsent_command_is_sent_by_whoever_lives() -> None:
    """Another console sends an unsent command once its claim has ended, with its own jti, and with
    a new expiry if the old one has passed.
    """
    claimed = decision(claimed_by="other", claimed_until=AT + 5)
    unsent = command(sent_at=None)
    assert next_step(situation(unsent, after=4, decision=claimed)) == WaitForChange(until=AT + 5)
    assert next_step(situation(unsent, after=5, decision=claimed)) == SendCommand(
        command=unsent, expires_at=AT + 8
    )
    step = next_step(situation(unsent, after=100, decision=claimed))
    assert step == SendCommand(command=unsent, expires_at=AT + 108)


def test_an_unsent_command_is_given_up_in_the_end() -> None:
    """An approval whose command can never be sent, because the broker is gone for good, does not
    stay open for ever.
    """
    deaf = {"broker": None}
    unsent = command(sent_at=None)
    long = situation(unsent, after=599 + END_SECONDS, connected=deaf, candidates=[])
    assert isinstance(next_step(long), SendCommand)
    over = situation(unsent, after=600 + END_SECONDS, connected=deaf, candidates=[])
    assert next_step(over) == EndDecision(outcome="unanswered", reason="no_answer")


@pytest.mark.parametrize("event", [STARTED, CHANGED, ENDED])
def test_an_unsent_command_is_dropped_if_the_event_has_moved(event: ShownEvent) -> None:
    """An unsent command for an event that has changed since is not signed."""
    step = next_step(situation(command(sent_at=None), after=6, event=event))
    assert isinstance(step, EndDecision)
    assert step.outcome == "overtaken"


def test_a_vm_that_does_not_fetch_is_passed_over() -> None:
    """If a VM does not fetch its command over HTTPS, the next reporter is asked once the token has
    expired.
    """
    waiting = command(channel="pull", sent_at=None)
    assert next_step(situation(waiting, after=5)) == WaitForChange(until=AT + 8)
    assert isinstance(next_step(situation(waiting, after=8)), AskVm)
    alone = situation(waiting, after=8, candidates=[])
    assert next_step(alone) == EndDecision(outcome="unanswered", reason="no_answer")
    restarted = situation(waiting, after=30, up_since=AT + 29)
    assert next_step(restarted) == SendCommand(command=waiting, expires_at=AT + 38)


def test_left_and_second_end_with_the_event() -> None:
    """A decision that waits only for the event or for a second person ends when the event changes,
    starts or ends.
    """
    for waiting in (decision(kind="leave"), decision(state="second")):
        assert next_step(situation(after=5, decision=waiting)) == WaitForChange()
        changed = next_step(situation(after=5, decision=waiting, event=CHANGED))
        assert changed == EndDecision(outcome="overtaken", reason="changed")
    left = situation(after=5, decision=decision(kind="leave"), event=STARTED)
    assert next_step(left) == EndDecision(outcome="left")
    for event in (STARTED, ENDED):
        alone = situation(after=5, decision=decision(state="second"), event=event)
        assert next_step(alone) == EndDecision(outcome="overtaken", reason=event.state)


def test_a_rule_overtakes_what_was_left() -> None:
    """If a rule approves an event that a person left, the decision is shown as overtaken by the
    rule.
    """
    left = situation(
        after=5,
        decision=decision(kind="leave"),
        event=STARTED,
        receipts=[receipt_of_rule("confirmed")],
    )
    assert next_step(left) == EndDecision(outcome="overtaken", reason="rule:quick")


def test_a_rule_was_quicker() -> None:
    """If the VM finds the event started because its rule, or a person on it, has approved it, the
    decision is overtaken.
    """
    receipts = [receipt_of_rule("confirmed"), receipt("rejected", "already_started")]
    step = next_step(situation(command(), after=2, receipts=receipts))
    assert step == EndDecision(outcome="overtaken", reason="rule:quick")


def test_the_table_has_an_answer_for_every_state() -> None:
    """In each state the last condition is always true, and none comes after it."""
    assert set(TABLE) == set(DecisionStage)
    for row in TABLE.values():
        assert [each is always for each in row] == [False] * (len(row) - 1) + [True]


def test_the_table_can_be_read() -> None:
    """Each printed row has a state, a condition and a step in words."""
    rows = printed()
    assert len(rows) == sum(len(row) for row in TABLE.values())
    assert {state for state, _, _ in rows} == {each.value for each in DecisionStage}
    assert all(words.endswith(".") for _, *columns in rows for words in columns)


def test_every_reason_of_a_refusal_is_in_the_reference() -> None:
    """The reference shows each reason for which a request is refused: in the table of requests, or
    among those of turns.
    """
    steps = [step for row in decision_requests.TABLE.values() for step in row.values()]
    reasons = {step.reason for step in steps if isinstance(step, decision_requests.Refuse)}
    assert reasons | {*turn_requests.REFUSALS} == REASONS.keys()
