"""The outcome of a person's request, as a table: values in, an action or a refusal out.

The first row whose condition holds is used. docs/console-reference.md shows the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from console.access.people import Person, is_same_person
from console.access.scope import decides_event
from console.approvals.printing import words_of
from console.approvals.refused import REASONS, RefusalReason
from console.fleet.candidates import Candidate
from console.fleet.commands import working
from console.fleet.values import Decision, KnownEvent

MAX_REASON: Final = 300
"""In characters; a token's text may have 512."""
What = Literal["approve", "leave"]
Action = Literal["note_first", "note_leave", "keep_first", "keep_left", "send"]
ACTIONS: Final[dict[Action, str]] = {
    "note_first": "Note the first of two persons.",
    "note_leave": "Note that it is left until its notBefore.",
    "keep_first": "Answer that a second person is needed; nothing is written.",
    "keep_left": "Answer that it is left; nothing is written.",
    "send": "Write decision and command; what is to be sent is sent after the commit.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """The request of a person, about an event in the state that the person saw."""

    what: What
    person: Person
    event_id: str
    fingerprint: str
    reason: str
    scope: str | None
    """The scope of the event. None: of the events with this id, the one whose named VM has been
    known longest.
    """
    can_sign: bool
    """Whether the console has a signing key."""
    four_eyes: int = 0
    """The least number of named VMs for which a second person is needed; 0: never."""
    change_pattern: str | None = None
    """The regular expression of a change number, if an approval must name one."""
    force: bool = False
    """Whether the event is approved even if it is not due its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSituation:
    """A request, and what the transaction that decides it has read."""

    request: DecisionRequest
    known: KnownEvent | None
    open_decision: Decision | None
    """The decision on the event that is not over."""
    candidates: Sequence[Candidate]
    """The VMs that can be asked now, the best first."""

    @property
    def first_of_two(self) -> Decision | None:
        """The first person's approval of this state of the event, if it waits for a
        second person.
        """
        open_decision = self.open_decision
        if open_decision is None or open_decision.state != "second":
            return None
        return open_decision if open_decision.fingerprint == self.request.fingerprint else None


Condition = Callable[[RequestSituation], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A row of the table: a condition on a request, and the refusal or the action if it holds."""

    what: tuple[What, ...]
    when: Condition
    then: RefusalReason | Action


def outcome_of(case: RequestSituation) -> RefusalReason | Action:
    """Return why a request is refused, or which action follows."""
    rows = (row for row in TABLE if case.request.what in row.what)
    return next(row.then for row in rows if row.when(case))


def is_reason(text: str) -> bool:
    """Check whether a text can be the reason of a decision: one line, and not too long."""
    return 0 < len(text) <= MAX_REASON and text.isprintable() and not text.isspace()


def names_change(reason: str, pattern: str | None) -> bool:
    """Check whether a reason holds a change number, if there is a pattern for one."""
    return pattern is None or re.search(pattern, reason) is not None


# Conditions. The first line of each docstring stands in the printed table.


def always(_case: RequestSituation) -> bool:
    """In any other case."""
    return True


def has_no_role(case: RequestSituation) -> bool:
    """The person does not have the role approver."""
    return "approver" not in case.request.person.roles


def is_of_other_sites(case: RequestSituation) -> bool:
    """The event concerns another site than the person's own."""
    known = case.known
    if known is None:
        return False
    sites = (each.site for each in known.named.values())
    return not decides_event(case.request.person, known.event, sites)


def has_no_reason(case: RequestSituation) -> bool:
    """The reason is missing, too long, or not one plain line."""
    return not is_reason(case.request.reason)


def names_no_change(case: RequestSituation) -> bool:
    """The reason must name a change, and does not."""
    return not names_change(case.request.reason, case.request.change_pattern)


def is_unknown(case: RequestSituation) -> bool:
    """There is no such event."""
    return case.known is None


def is_under_way(case: RequestSituation) -> bool:
    """A VM has, or will have, something to do for this event."""
    open_decision = case.open_decision
    known = case.known
    if (
        open_decision is not None
        and open_decision.kind == "approve"
        and open_decision.state == "open"
    ):
        return True
    return known is not None and known.event.state == "scheduled" and bool(working(known.receipts))


def is_not_what_was_seen(case: RequestSituation) -> bool:
    """The event is not Scheduled, or not as the person saw it."""
    known = case.known
    if known is None or known.event.state != "scheduled":
        return True
    return known.shown.report.fingerprint != case.request.fingerprint


def is_news(case: RequestSituation) -> bool:
    """The event is only information."""
    return case.known is not None and case.known.event.is_news


def cannot_sign(case: RequestSituation) -> bool:
    """The console has no key."""
    return not case.request.can_sign


def is_unproven(case: RequestSituation) -> bool:
    """What is shown cannot be checked against the fingerprint."""
    return case.known is not None and not case.known.shown.report.is_proven


def is_first_of_two(case: RequestSituation) -> bool:
    """Two persons are needed, and this is the first."""
    return _needs_two(case) and case.first_of_two is None


def is_the_same_person(case: RequestSituation) -> bool:
    """Two persons are needed, and this one was the first."""
    waiting = case.first_of_two
    return (
        _needs_two(case)
        and waiting is not None
        and is_same_person(waiting.actor, case.request.person.name)
    )


def is_second_token(case: RequestSituation) -> bool:
    """Two persons are needed, and the second is a program."""
    return _needs_two(case) and case.request.person.is_token


def nobody_can_be_asked(case: RequestSituation) -> bool:
    """No VM that the event names is heard and takes commands."""
    return not case.candidates


def is_left_already(case: RequestSituation) -> bool:
    """This state of the event has been left already."""
    open_decision = case.open_decision
    if open_decision is None or open_decision.kind != "leave":
        return False
    return open_decision.fingerprint == case.request.fingerprint


def _needs_two(case: RequestSituation) -> bool:
    least = case.request.four_eyes
    known = case.known
    return known is not None and 0 < least <= len(known.shown.report.event.resources)


_BOTH: Final[tuple[What, ...]] = ("approve", "leave")
_APPROVE: Final[tuple[What, ...]] = ("approve",)
_LEAVE: Final[tuple[What, ...]] = ("leave",)
TABLE: Final = (
    RequestRow(what=_BOTH, when=has_no_role, then="role"),
    RequestRow(what=_BOTH, when=is_of_other_sites, then="site"),
    RequestRow(what=_BOTH, when=has_no_reason, then="reason"),
    RequestRow(what=_APPROVE, when=names_no_change, then="change"),
    RequestRow(what=_BOTH, when=is_unknown, then="unknown"),
    RequestRow(what=_BOTH, when=is_under_way, then="under_way"),
    RequestRow(what=_BOTH, when=is_not_what_was_seen, then="changed"),
    RequestRow(what=_BOTH, when=is_news, then="not_approvable"),
    RequestRow(what=_APPROVE, when=cannot_sign, then="no_key"),
    RequestRow(what=_APPROVE, when=is_unproven, then="unproven"),
    RequestRow(what=_APPROVE, when=is_first_of_two, then="note_first"),
    RequestRow(what=_APPROVE, when=is_the_same_person, then="keep_first"),
    RequestRow(what=_APPROVE, when=is_second_token, then="second"),
    RequestRow(what=_APPROVE, when=nobody_can_be_asked, then="no_witness"),
    RequestRow(what=_APPROVE, when=always, then="send"),
    RequestRow(what=_LEAVE, when=is_left_already, then="keep_left"),
    RequestRow(what=_LEAVE, when=always, then="note_leave"),
)


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: request, condition and outcome."""
    return [(" or ".join(row.what), words_of(row.when), _outcome_words(row.then)) for row in TABLE]


def _outcome_words(outcome: RefusalReason | Action) -> str:
    for action, words in ACTIONS.items():
        if action == outcome:
            return words
    return f"Refuse ({outcome}): {REASONS[outcome].sentence}"  # type: ignore[index]  # no action
