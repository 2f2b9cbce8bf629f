"""Notices about events. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote

from console.fleet.decisions import only_hastens_deletion
from console.fleet.moments import moment
from console.fleet.outcomes import outcome_text
from console.fleet.values.decision import Decision
from console.fleet.values.event import KnownEvent, NamedVm
from console.fleet.values.keys import name_key
from console.fleet.values.report import LatestReport
from console.notify.notice import MAX_REASON_CHARACTERS_SHOWN, Notice, short
from sinks.shared.text import listed
from wire.event import UNKNOWN_STATUS, Event
from wire.fields import read_object
from wire.moment import moment_text

ESCALATE_SECONDS: Final = 300.0
"""This long before notBefore, an event without a decision gets a second notice."""
DUE: Final = ("due", "second")
"""The states of a decision that need a notice."""
_NAMES_SHOWN: Final = 5
FAILURES: Final = ("failed", "rejected", "unanswered")


def notices_of_open(
    known: KnownEvent, state: str, now: float, *, times_ended: int = 0
) -> list[Notice]:
    """Return the notices about a decision that is due: that it is due, and that it is still open
    shortly before the event's time. `state` is the decision's; `times_ended` is how many notices
    have said that the event is over.
    """
    if state not in DUE:
        return []
    event = known.shown.report.event
    start = known.event.not_before
    found = []
    is_note = only_hastens_deletion(event.event_type)
    who = "a decision is due" if state == "due" else "a second person is needed"
    if is_note:
        who = "for your information, nothing needs to be decided"
    by = "" if start is None else f" It starts at {moment(start)} whatever is decided."
    fingerprint = known.shown.report.fingerprint
    found.append(
        _about(
            "decision-due",
            known,
            key=(fingerprint, state, *_repeat_key(times_ended)),
            at=now,
            title=f"{_what(event)}: {who}",
            text=f"{_whom(event)}{by}",
        )
    )
    if start is not None and now >= start - ESCALATE_SECONDS and not is_note:
        found.append(
            _about(
                "undecided",
                known,
                key=(fingerprint, moment_text(event.not_before), *_repeat_key(times_ended)),
                at=now,
                title=f"{_what(event)}: not decided, and it starts soon",
                text=f"{_whom(event)} It may start at {moment(start)}.",
            )
        )
    return found


def of_turn(known: KnownEvent, at: float) -> Notice | None:
    """Return the notice of a turn that is stuck, or of an event that Azure starts without a turn,
    or None.
    """
    turn = known.turn
    if turn is None or turn.state not in ("forced", "stuck"):
        return None
    groups = listed([short(each) for each in turn.groups], _NAMES_SHOWN)
    names = listed([short(each.name) for each in turn.held_by], _NAMES_SHOWN)
    if turn.state == "stuck":
        title = f"the turn of {names or 'no VM'} has not ended an hour after it"
        text = f"In {groups} others wait for it. A person can end it on the event's page."
    else:
        title = f"no turn in {groups}"
        reason = short(turn.reason or "", most=MAX_REASON_CHARACTERS_SHOWN)
        text = f"{reason[:1].upper()}{reason[1:]}."
    return _about(
        "turn-stuck" if turn.state == "stuck" else "turn-forced",
        known,
        key=(turn.since,),
        at=at,
        title=f"{_what(known.shown.report.event)}: {title}",
        text=text,
    )


def over(known: KnownEvent, reported: Iterable[LatestReport], *, times_ended: int = 0) -> Notice:
    """Return the notice of an event that has ended, with the longest interruption that its VMs
    report. `times_ended` is how many notices had said before that it is over.
    """
    event = known.shown.report.event
    costs = sorted(filter(None, map(_cost, reported)), reverse=True)
    cost = f" The longest interruption measured: {costs[0]:.1f} s." if costs else ""
    return _about(
        "event-over",
        known,
        key=_repeat_key(times_ended),
        at=known.event.shown_at,
        title=f"{_what(event)}: {short(event.event_status.lower())}",
        text=f"{_whom(event)}{cost}",
        more={"interruptionSeconds": costs[0] if costs else None},
    )


def approval_failed(decision: Decision, known: KnownEvent | None) -> Notice:
    """Return the notice of an approval that failed; `known` is what is known of its event now."""
    event = _event_without_facts(decision.event_id) if known is None else known.shown.report.event
    outcome = decision.outcome or ""
    reason = short(outcome_text(outcome, decision.outcome_reason), most=MAX_REASON_CHARACTERS_SHOWN)
    return _about(
        "approval-failed",
        known or event,
        scope=decision.scope,
        key=(decision.id,),
        at=decision.over_at or decision.at,
        title=f"{_what(event)}: the approval of {short(decision.actor)} {_outcome_text(outcome)}",
        text=f"{_whom(event)} {reason}",
        more={"outcome": outcome},
    )


def path_of(event_id: str) -> str:
    """Return the path of an event's page."""
    return f"/events/{quote(event_id, safe='')}"


def _event_without_facts(event_id: str) -> Event:
    """Return an event that has only an id."""
    known = {"eventId": event_id, "resources": [], "eventStatus": UNKNOWN_STATUS}
    return read_object(Event, known)


def _about(kind: Any, subject: KnownEvent | Event, **given: Any) -> Notice:
    if isinstance(subject, Event):
        event = subject
        state = "scheduled"
        impact = None
        named = None
    else:
        report = subject.shown.report
        event = report.event
        state = subject.event.state
        impact = report.impact
        named = _first_named(subject, event.resources)
        given["scope"] = subject.event.scope
    name = next(iter(event.resources), "")
    return Notice(
        kind=kind,
        subject=event.event_id,
        path=path_of(event.event_id),
        event=event.to_wire(),
        transition=state,
        impact=impact,
        vm={"vmId": "" if named is None else named.vm_id, "name": short(name or "no VM")},
        **given,
    )


def _repeat_key(times_ended: int) -> tuple[object, ...]:
    """Return the part of a key that distinguishes an event that was announced again."""
    return (f"life {times_ended + 1}",) if times_ended else ()


def _first_named(known: KnownEvent, names: Sequence[str]) -> NamedVm | None:
    return known.named.get(name_key(names[0])) if names else None


def _what(event: Event) -> str:
    names = [short(name) for name in event.resources]
    kind = short(event.event_type or "Event")
    return f"{kind} of {listed(names, _NAMES_SHOWN)}" if names else kind


def _whom(event: Event) -> str:
    count = len(event.resources)
    return f"The event names {count} VM{'' if count == 1 else 's'}."


def _outcome_text(outcome: str) -> str:
    return {"failed": "failed", "rejected": "was rejected"}.get(outcome, "was not answered")


def _cost(latest: LatestReport) -> float | None:
    measured = (latest.report.pause_seconds, latest.report.downtime_seconds)
    return max((each for each in measured if each is not None), default=None)
