"""The next step of a person's request, as one table; values in, values out.

The first condition that is true names the next step. docs/console-reference.md shows the
table; `request_transaction` carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from console.access.people import Person
from console.access.site_access import decides_event
from console.approvals.refusal_reasons import REASONS, RefusalReason
from console.approvals.table_text import description_of
from console.fleet.candidates import Candidate
from console.fleet.commands import under_way
from console.fleet.decisions import MAX_REASON_CHARACTERS
from console.fleet.values.decision import Decision
from console.fleet.values.event import KnownEvent
from console.fleet.values.person_names import is_same_person

What = Literal["approve", "leave", "end_turn"]


class Action(Enum):
    """What a request that is not refused leads to."""

    WRITE_FIRST = "Note the first of two persons."
    WRITE_LEFT = "Note that it is left until its notBefore."
    ANSWER_SECOND = "Answer that a second person is needed; nothing is written."
    ANSWER_LEFT = "Answer that it is left; nothing is written."
    SEND = "Write decision and command; what is to be sent is sent after the commit."
    END_TURN = "End the turn of its VMs, and the approval for which it was given."

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the request."""

    reason: RefusalReason

    def __str__(self) -> str:
        return f"Refuse ({self.reason}): {REASONS[self.reason].sentence}"


RequestStep = Refuse | Action


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """The request of a person, about an event in the state that the person saw."""

    what: What
    person: Person
    event_id: str
    fingerprint: str
    """Empty for the end of a turn, which depends on no state of the event."""
    reason: str
    scope: str | None = None
    """The scope of the event. None: of the events with this id, the one whose named VM has been
    known longest.
    """
    force: bool = False
    """Whether the event is approved even if it is not due its turn, or its turn ended even if it is
    not stuck.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPolicy:
    """What the settings of the console demand of decisions."""

    can_sign: bool
    """Whether the console has a signing key."""
    four_eyes: int = 0
    """The least number of named VMs for which a second person is needed; 0: never."""
    change_pattern: str | None = None
    """The regular expression of the number of a change, if an approval must name one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTurn:
    """The turn that the VMs of the event hold, which a person may end."""

    is_stuck: bool
    is_being_approved: bool
    """Whether an approval of the event is open."""
    is_past: bool
    """Whether the time in which a VM may follow the commands of that approval is over."""
    may_be_followed: bool
    """Whether a VM may still follow an earlier approval: a document may have left the event out for
    a moment.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSituation:
    """A request, the policy, and what the transaction that decides it has read."""

    request: DecisionRequest
    policy: DecisionPolicy
    known: KnownEvent | None
    open_decision: Decision | None = None
    """The decision on the event that is not over."""
    is_first_bad: bool = False
    """Whether it was made by a token in whose name nothing is approved any more."""
    candidates: Sequence[Candidate] = ()
    """The VMs that can be asked now, the best first."""
    held_turn: HeldTurn | None = None
    """Read only if the request is to end it."""

    @property
    def first_of_two(self) -> Decision | None:
        """The first person's approval of this state of the event, if it waits for a
        second person.
        """
        open_decision = self.open_decision
        if open_decision is None or open_decision.state != "second" or self.is_first_bad:
            return None
        return open_decision if open_decision.fingerprint == self.request.fingerprint else None


RequestCondition = Callable[[RequestSituation], bool]


def next_step(situation: RequestSituation) -> RequestStep:
    """Return why a request is refused, or which action follows."""
    row = TABLE[situation.request.what]
    return next(step for condition, step in row.items() if condition(situation))


def is_reason(text: str) -> bool:
    """Check whether a text can be the reason of a decision: one line, and not too long."""
    return 0 < len(text) <= MAX_REASON_CHARACTERS and text.isprintable() and not text.isspace()


def names_change(reason: str, pattern: str | None) -> bool:
    """Check whether a reason holds the number of a change, if there is a pattern for one."""
    return pattern is None or re.search(pattern, reason) is not None


# Conditions. The first line of each docstring stands in the printed table.


def always(_situation: RequestSituation) -> bool:
    """In any other case."""
    return True


def has_no_role(situation: RequestSituation) -> bool:
    """The person does not have the role approver."""
    return "approver" not in situation.request.person.roles


def is_of_other_sites(situation: RequestSituation) -> bool:
    """The event concerns another site than the person's own."""
    known = situation.known
    if known is None:  # the sites that a held turn concerns are not known
        return situation.held_turn is not None and situation.request.person.site is not None
    sites = (each.site for each in known.named.values())
    return not decides_event(situation.request.person, known.event, sites)


def has_no_reason(situation: RequestSituation) -> bool:
    """The reason is missing, too long, or not one plain line."""
    return not is_reason(situation.request.reason)


def names_no_change(situation: RequestSituation) -> bool:
    """The reason must name a change, and does not."""
    return not names_change(situation.request.reason, situation.policy.change_pattern)


def is_unknown(situation: RequestSituation) -> bool:
    """There is no such event."""
    return situation.known is None


def is_under_way(situation: RequestSituation) -> bool:
    """A VM has, or will have, something to do for this event."""
    open_decision = situation.open_decision
    known = situation.known
    if (
        open_decision is not None
        and open_decision.kind == "approve"
        and open_decision.state == "open"
    ):
        return True
    return (
        known is not None and known.event.state == "scheduled" and bool(under_way(known.receipts))
    )


def is_not_what_was_seen(situation: RequestSituation) -> bool:
    """The event is not Scheduled, or not as the person saw it."""
    known = situation.known
    if known is None or known.event.state != "scheduled":
        return True
    return known.shown.report.fingerprint != situation.request.fingerprint


def is_news(situation: RequestSituation) -> bool:
    """The event is only information."""
    return situation.known is not None and situation.known.event.is_news


def cannot_sign(situation: RequestSituation) -> bool:
    """The console has no key."""
    return not situation.policy.can_sign


def is_unproven(situation: RequestSituation) -> bool:
    """What is shown cannot be checked against the fingerprint."""
    return situation.known is not None and not situation.known.shown.report.is_proven


def is_first_of_two(situation: RequestSituation) -> bool:
    """Two persons are needed, and this is the first."""
    return _needs_two(situation) and situation.first_of_two is None


def is_the_same_person(situation: RequestSituation) -> bool:
    """Two persons are needed, and this one was the first."""
    waiting = situation.first_of_two
    return (
        _needs_two(situation)
        and waiting is not None
        and is_same_person(waiting.actor, situation.request.person.name)
    )


def is_second_token(situation: RequestSituation) -> bool:
    """Two persons are needed, and the second is a program."""
    return _needs_two(situation) and situation.request.person.is_token


def nobody_can_be_asked(situation: RequestSituation) -> bool:
    """No VM that the event names is heard and takes commands."""
    return not situation.candidates


def is_left_already(situation: RequestSituation) -> bool:
    """This state of the event has been left already."""
    open_decision = situation.open_decision
    if open_decision is None or open_decision.kind != "leave":
        return False
    return open_decision.fingerprint == situation.request.fingerprint


def is_unknown_without_turn(situation: RequestSituation) -> bool:
    """There is no such event, and its VMs hold no turn."""
    return situation.known is None and situation.held_turn is None


def holds_no_turn(situation: RequestSituation) -> bool:
    """The VMs of this event hold no turn."""
    return situation.held_turn is None


def may_still_start(situation: RequestSituation) -> bool:
    """A VM may still tell Azure to start the event."""
    turn = situation.held_turn
    if turn is None:
        return False
    is_given_up = situation.request.force and turn.is_past
    return turn.may_be_followed or (turn.is_being_approved and not is_given_up)


def is_not_stuck(situation: RequestSituation) -> bool:
    """The turn is not stuck, and the person does not use force."""
    turn = situation.held_turn
    return turn is not None and not (turn.is_stuck or situation.request.force)


def _needs_two(situation: RequestSituation) -> bool:
    least = situation.policy.four_eyes
    known = situation.known
    return known is not None and 0 < least <= len(known.shown.report.event.resources)


TABLE: Final[Mapping[What, Mapping[RequestCondition, RequestStep]]] = {
    "approve": {
        has_no_role: Refuse("role"),
        is_of_other_sites: Refuse("site"),
        has_no_reason: Refuse("reason"),
        names_no_change: Refuse("change"),
        is_unknown: Refuse("unknown"),
        is_under_way: Refuse("under_way"),
        is_not_what_was_seen: Refuse("changed"),
        is_news: Refuse("not_approvable"),
        cannot_sign: Refuse("no_key"),
        is_unproven: Refuse("unproven"),
        is_first_of_two: Action.WRITE_FIRST,
        is_the_same_person: Action.ANSWER_SECOND,
        is_second_token: Refuse("second"),
        nobody_can_be_asked: Refuse("no_witness"),
        always: Action.SEND,
    },
    "leave": {
        has_no_role: Refuse("role"),
        is_of_other_sites: Refuse("site"),
        has_no_reason: Refuse("reason"),
        is_unknown: Refuse("unknown"),
        is_under_way: Refuse("under_way"),
        is_not_what_was_seen: Refuse("changed"),
        is_news: Refuse("not_approvable"),
        is_left_already: Action.ANSWER_LEFT,
        always: Action.WRITE_LEFT,
    },
    "end_turn": {
        has_no_role: Refuse("role"),
        is_of_other_sites: Refuse("site"),
        has_no_reason: Refuse("reason"),
        is_unknown_without_turn: Refuse("unknown"),
        holds_no_turn: Refuse("no_turn"),
        may_still_start: Refuse("under_way"),
        is_not_stuck: Refuse("not_stuck"),
        always: Action.END_TURN,
    },
}


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: request, condition and step."""
    return [
        (what, description_of(condition), str(step))
        for what, row in TABLE.items()
        for condition, step in row.items()
    ]
