"""The decision on an event's page: four lines, a form for those who may decide, and the attempts so
far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.access.people import Person
from console.config.settings import ConsoleSettings
from console.fleet.decisions import only_hastens_deletion
from console.fleet.differences import differences
from console.fleet.event_view import EventDetail, EventItem
from console.fleet.moments import seconds_of
from console.fleet.timeline import TimelineDecision
from console.fleet.values.person_names import is_same_person
from console.web.pages import approval_attempts, form_fields, formatting, labels

_OPEN: Final = ("due", "second", "left")
"""States of a decision in which a person may decide."""
_AFTER: Final = ("due", "none")
"""States in which the result of the last decision is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedForm:
    """A form that was not carried out: the reason, and what the person had filled in."""

    problem: str
    reason: str = ""
    seen: form_fields.SeenEvent | None = None
    """Given if the event is not what the person saw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row of the comparison; with `is_time` both values are seconds since 1970 or None."""

    label: str
    before: Any
    now: Any
    is_time: bool = False


def template_values(
    event: EventDetail,
    *,
    person: Person,
    settings: ConsoleSettings,
    has_key: bool,
    name_of: Callable[[str], str],
    sent: RejectedForm | None = None,
) -> dict[str, Any]:
    """Return the values of the template for the decision on an event; `has_key`: the console can
    sign.
    """
    decision = event.decision
    tried = approval_attempts.attempts(event.timeline, name_of)
    decisions = [each for each in event.timeline if each.kind == "decision"]
    by = decision.by
    is_here = by in {each.by for each in decisions}
    first = by if decision.state == "second" else None
    why_not = _why_not(event, person)
    can_force = _can_force(event)
    is_open = decision.state in ("due", "second", "left") or can_force
    return {
        "state": decision.state,
        "is_asked": event.state == "scheduled" and is_open,
        "only_hastens_deletion": only_hastens_deletion(event.event_type),
        "by": None if by is None else labels.actor_label(by, here=is_here),
        "at": decision.at,
        "reason": decision.reason,
        "is_first": first is not None and is_same_person(first, person.name),
        "names": event.names,
        "four_eyes": needs_second(event, settings),
        "change_pattern": settings.approval.change_pattern,
        "form": why_not is None,
        "can_force": can_force,
        "is_stuck": event.turn.state == "stuck" and "approver" in person.roles,
        "why_not": why_not,
        "has_key": has_key,
        "seen": form_fields.written(event),
        "fingerprint": event.fingerprint,
        "problem": sent.problem if sent else None,
        "typed": sent.reason if sent else "",
        "changes": changes(sent.seen, event) if sent and sent.seen else None,
        "attempts": tried[::-1],
        "last": _last_in_vain(decisions, decision.state),
    }


def needs_second(event: EventItem, settings: ConsoleSettings) -> bool:
    """Check whether an event needs the approval of a second person."""
    least = settings.approval.four_eyes
    return 0 < least <= len(event.names)


def changes(seen: form_fields.SeenEvent, event: EventItem) -> list[Change]:
    """Return the comparison of what a person saw with the present state, in words."""
    found = differences(seen.fields, form_fields.seen_now(event))
    return [
        Change(
            label=labels.field_label(each.field),
            before=field_value(each.field, each.before),
            now=field_value(each.field, each.now),
            is_time=each.field == "notBefore",
        )
        for each in sorted(found, key=lambda each: labels.field_order(each.field))
    ]


def _last_in_vain(decisions: Sequence[TimelineDecision], state: str) -> TimelineDecision | None:
    """Return the newest decision if it had no effect; otherwise None."""
    last = decisions[-1] if decisions else None
    if last is None or last.outcome in (None, "confirmed", "left") or state not in _AFTER:
        return None
    return last


def _why_not(event: EventDetail, person: Person) -> tuple[str, str] | None:
    """Return the reason why this person gets no form, and what to do; None if there is a form."""
    decision = event.decision
    is_open = decision.state in _OPEN or _can_force(event)
    if event.state != "scheduled" or not is_open:
        return "", ""  # the state of the event says it
    if "approver" not in person.roles:
        return (
            "You can look, but not decide: you do not have the role approver.",
            "The operator of the console gives it with SEB_CONSOLE_ROLES.",
        )
    is_first = decision.by is not None and is_same_person(decision.by, person.name)
    if decision.state == "second" and is_first:
        return (
            "You were the first to approve. Another approver has to be the second.",
            "Send them the address of this page.",
        )
    return None


def _can_force(event: EventDetail) -> bool:
    """Check whether the event waits for its group, or failed in it: a person may override both."""
    has_turn = event.turn.state in ("waiting", "forced", "failed")
    return event.state == "scheduled" and has_turn and event.decision.state in (*_OPEN, "none")


def field_value(field: str, value: Any) -> Any:
    """Return a field's value from JSON for the comparison: seconds since 1970, a list of names, or
    words.
    """
    if field == "notBefore":
        return seconds_of(value)
    if field == "durationInSeconds":
        is_known = isinstance(value, (int, float)) and value >= 0
        return formatting.span(value) if is_known else "not given"
    if field == "resources":
        names: Sequence[object] = value if isinstance(value, list) else []
        return [str(name) for name in names]
    if field == "eventSource":
        return labels.ASKED_BY.get(str(value), value or "not given")
    return value or "not given"
