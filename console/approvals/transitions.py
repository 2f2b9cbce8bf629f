"""The state machine of a decision, as one table; values in, values out.

In each stage the first condition that is true names the next step. docs/console-reference.md shows
the table; `step_transaction` carries it out. It never lets two VMs work on one event: the next
reporter is asked only once the token of the last has expired, the event is Scheduled with the same
fingerprint, and no VM has reported anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from console.approvals.decision_situation import (
    GRACE_SECONDS,
    SHORT_SECONDS,
    AskVm,
    DecisionSituation,
    DecisionStep,
    EndDecision,
    SendCommand,
    WaitForChange,
    expiry,
)
from console.approvals.table_text import description_of
from console.fleet.candidates import PULL, next_candidate
from console.fleet.commands import LAPSE_SECONDS


class DecisionStage(Enum):
    """The stage of a decision that is not over."""

    SECOND = "a second person has to approve too"
    LEFT = "left until its notBefore"
    UNSENT = "the newest command is not sent"
    SENT = "the newest command is sent, and no VM has answered"
    ACCEPTED = "a VM has accepted its command"
    POSTED = "a VM has asked Azure to start the event"
    REFUSED = "VMs have answered, and none of them approves the event"
    CONFIRMED = "a VM has confirmed"


_REPORTED: Final = {
    "confirmed": DecisionStage.CONFIRMED,
    "posted": DecisionStage.POSTED,
    "accepted": DecisionStage.ACCEPTED,
}
"""The states that VMs report of a command, the one that counts most first."""
_MOVED: Final = ("already_started", "unknown_event")
"""The reasons that a VM gives if it was asked too late."""
WAIT: Final = WaitForChange()
CONFIRMED: Final = EndDecision(outcome="confirmed")
LEFT: Final = EndDecision(outcome="left")
CHANGED: Final = EndDecision(outcome="overtaken", reason="changed")
NO_END: Final = EndDecision(outcome="unanswered", reason="no_end")
NO_ANSWER: Final = EndDecision(outcome="unanswered", reason="no_answer")

DecisionCondition = Callable[[DecisionSituation], bool]
Then = DecisionStep | Callable[[DecisionSituation], DecisionStep]
"""The next step, or what finds it."""


def next_step(situation: DecisionSituation) -> DecisionStep:
    """Return the next step of a decision that is not over."""
    row = TABLE[stage_of(situation)]
    then = next(then for condition, then in row.items() if condition(situation))
    return then(situation) if callable(then) else then


def stage_of(situation: DecisionSituation) -> DecisionStage:
    """Return the stage of a decision that is not over."""
    decision = situation.decision
    if decision.state == "second":
        return DecisionStage.SECOND
    if decision.kind == "leave":
        return DecisionStage.LEFT
    for reported, stage in _REPORTED.items():
        if situation.time_of(reported) is not None:
            return stage
    if situation.answers:
        return DecisionStage.REFUSED
    last = situation.last
    is_unsent = last is not None and last.sent_at is None
    return (
        DecisionStage.UNSENT
        if is_unsent and situation.now < situation.deadline
        else DecisionStage.SENT
    )


# Conditions. The first line of each docstring stands in the printed table.


def always(_situation: DecisionSituation) -> bool:
    """In any other case."""
    return True


def is_as_decided(situation: DecisionSituation) -> bool:
    """The event is Scheduled and as it was decided."""
    event = situation.event
    decision = situation.decision
    return (
        event is not None
        and event.state == "scheduled"
        and event.fingerprint == decision.fingerprint
    )


def has_changed(situation: DecisionSituation) -> bool:
    """The event is Scheduled, but not as it was decided."""
    event = situation.event
    return event is not None and event.state == "scheduled" and not is_as_decided(situation)


def others_approved(situation: DecisionSituation) -> bool:
    """A VM reports that a rule, or a person on it, approved the event."""
    return situation.approved_by(or_confirmed=True) is not None


def is_out_of_reach(situation: DecisionSituation) -> bool:
    """Others are approving the event, or it is not as it was decided."""
    return situation.approved_by() is not None or not is_as_decided(situation)


def last_receipts_may_come(situation: DecisionSituation) -> bool:
    """The event is not as decided, or is approved by others, and a receipt may be on its way."""
    return is_out_of_reach(situation) and situation.now < situation.answers_until


def receipts_may_come(situation: DecisionSituation) -> bool:
    """A receipt of a command may still be on its way."""
    return situation.now < situation.answers_until


def has_begun_lately(situation: DecisionSituation) -> bool:
    """The event is not Scheduled any more, and the VM may still report that."""
    return has_begun(situation) and situation.now < _posted_at(situation) + GRACE_SECONDS


def has_begun(situation: DecisionSituation) -> bool:
    """The event is not Scheduled any more."""
    return situation.event is None or situation.event.state != "scheduled"


def end_may_come(situation: DecisionSituation) -> bool:
    """The deadline has not come: the VM may still report the end."""
    return situation.now < situation.deadline


def waits_for_poll(situation: DecisionSituation) -> bool:
    """The VM is to poll for the command, and the token is good."""
    return _is_pulled(situation) and situation.now < _last_expires_at(situation)


def had_no_chance(situation: DecisionSituation) -> bool:
    """The VM could not poll for it, because this console did not run."""
    ran_before = situation.up_since <= _last_expires_at(situation) - SHORT_SECONDS
    return _is_pulled(situation) and not ran_before


def can_ask_instead(situation: DecisionSituation) -> bool:
    """The VM did not poll for it, and another reporter can be asked."""
    return _is_pulled(situation) and situation.next_candidate is not None


def was_not_polled(situation: DecisionSituation) -> bool:
    """The VM did not poll for it, and no other reporter can be asked."""
    return _is_pulled(situation)


def is_claimed(situation: DecisionSituation) -> bool:
    """A console has claimed the sending."""
    until = situation.decision.claimed_until
    return until is not None and until > situation.now


def answer_may_come(situation: DecisionSituation) -> bool:
    """The VM may still answer, or the last token is still good."""
    return situation.now < situation.asked_next_at


def cannot_be_heard(situation: DecisionSituation) -> bool:
    """The source of a command is not connected, or has just been connected again."""
    away = any(situation.cannot_hear(each) for each in situation.commands)
    return away and situation.now < situation.deadline


def can_ask(situation: DecisionSituation) -> bool:
    """Another reporter can be asked."""
    return situation.next_candidate is not None


def was_asked_too_late(situation: DecisionSituation) -> bool:
    """The VM was asked too late, because others had approved the event."""
    return others_approved(situation) and _worst(situation).reason in _MOVED


# Actions.


def wait_for_receipts(situation: DecisionSituation) -> WaitForChange:
    """Wait until no receipt can come any more."""
    return WaitForChange(until=situation.answers_until)


def wait_for_start(situation: DecisionSituation) -> WaitForChange:
    """Wait some seconds for the receipt."""
    return WaitForChange(until=_posted_at(situation) + GRACE_SECONDS)


def wait_for_end(situation: DecisionSituation) -> WaitForChange:
    """Wait until the deadline."""
    return WaitForChange(until=situation.deadline)


def wait_for_lapse(situation: DecisionSituation) -> WaitForChange:
    """Wait until an acceptance counts no more, or the deadline once the event has started."""
    lapses_at = _last_expires_at(situation) + LAPSE_SECONDS + 1
    is_scheduled = situation.event is not None and situation.event.state == "scheduled"
    return WaitForChange(
        until=min(situation.deadline, lapses_at) if is_scheduled else situation.deadline
    )


def wait_for_poll(situation: DecisionSituation) -> WaitForChange:
    """Wait until the token expires."""
    return WaitForChange(until=_last_expires_at(situation))


def wait_for_claim(situation: DecisionSituation) -> WaitForChange:
    """Wait until the claim ends."""
    return WaitForChange(until=situation.decision.claimed_until)


def wait_for_answer(situation: DecisionSituation) -> WaitForChange:
    """Wait until the next reporter may be asked."""
    return WaitForChange(until=situation.asked_next_at)


def wait_for_source(situation: DecisionSituation) -> WaitForChange:
    """Check again in a second."""
    return WaitForChange(until=situation.now + 1)


def send(situation: DecisionSituation) -> SendCommand:
    """Sign the command and send it."""
    command = situation.last
    assert command is not None  # noqa: S101  # the stage says so
    # It may have been sent, and the console died before it wrote that down: a token that has not
    # expired keeps its expiry.
    until = command.expires_at
    if until <= situation.now + 1:
        others = situation.next_candidate is not None
        until = expiry(situation.now, situation.decision.not_before, others=others)
    return SendCommand(command=command, expires_at=until)


def ask(situation: DecisionSituation) -> AskVm:
    """Ask the next reporter."""
    candidate = situation.next_candidate
    assert candidate is not None  # noqa: S101  # the condition says so
    tried = {candidate.vm_id, *(each.vm_id for each in situation.commands)}
    others = next_candidate(situation.candidates, tried) is not None
    until = expiry(situation.now, situation.decision.not_before, others=others)
    return AskVm(candidate=candidate, expires_at=until)


def end_by_others(situation: DecisionSituation) -> EndDecision:
    """It is over: overtaken by an approval of others."""
    return EndDecision(outcome="overtaken", reason=situation.approved_by(or_confirmed=True))


def end_by_event(situation: DecisionSituation) -> EndDecision:
    """It is over: overtaken by what happened to the event."""
    if has_changed(situation):
        return CHANGED
    event = situation.event
    return EndDecision(outcome="overtaken", reason="ended" if event is None else event.state)


def end_out_of_reach(situation: DecisionSituation) -> EndDecision:
    """It is over: overtaken by an approval of others, or by what happened to the event."""
    by = situation.approved_by()
    return end_by_event(situation) if by is None else EndDecision(outcome="overtaken", reason=by)


def end_by_answer(situation: DecisionSituation) -> EndDecision:
    """It is over: failed or rejected, as the VM says; a failure counts more."""
    return _worst(situation)


def _worst(situation: DecisionSituation) -> EndDecision:
    order = ("failed", "rejected")
    furthest = min(situation.answers, key=lambda each: order.index(each.state))
    return EndDecision(outcome=furthest.state, reason=furthest.reason)


def _posted_at(situation: DecisionSituation) -> float:
    return situation.time_of("posted") or 0.0


def _is_pulled(situation: DecisionSituation) -> bool:
    return situation.last is not None and situation.last.channel == PULL


def _last_expires_at(situation: DecisionSituation) -> float:
    return 0.0 if situation.last is None else situation.last.expires_at


TABLE: Final[Mapping[DecisionStage, Mapping[DecisionCondition, Then]]] = {
    DecisionStage.SECOND: {
        is_as_decided: WAIT,
        always: end_by_event,
    },
    DecisionStage.LEFT: {
        is_as_decided: WAIT,
        has_changed: CHANGED,
        others_approved: end_by_others,
        always: LEFT,
    },
    DecisionStage.UNSENT: {
        last_receipts_may_come: wait_for_receipts,
        is_out_of_reach: end_out_of_reach,
        waits_for_poll: wait_for_poll,
        had_no_chance: send,
        can_ask_instead: ask,
        was_not_polled: NO_ANSWER,
        is_claimed: wait_for_claim,
        always: send,
    },
    DecisionStage.SENT: {
        last_receipts_may_come: wait_for_receipts,
        is_out_of_reach: end_out_of_reach,
        answer_may_come: wait_for_answer,
        cannot_be_heard: wait_for_source,
        can_ask: ask,
        receipts_may_come: wait_for_receipts,
        always: NO_ANSWER,
    },
    DecisionStage.ACCEPTED: {
        end_may_come: wait_for_lapse,
        always: NO_END,
    },
    DecisionStage.POSTED: {
        has_begun_lately: wait_for_start,
        has_begun: CONFIRMED,
        end_may_come: wait_for_end,
        always: NO_END,
    },
    DecisionStage.REFUSED: {
        receipts_may_come: wait_for_receipts,
        was_asked_too_late: end_by_others,
        always: end_by_answer,
    },
    DecisionStage.CONFIRMED: {
        always: CONFIRMED,
    },
}


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: stage, condition and step."""
    return [
        (
            stage.value,
            description_of(condition),
            description_of(then) if callable(then) else str(then),
        )
        for stage, row in TABLE.items()
        for condition, then in row.items()
    ]
