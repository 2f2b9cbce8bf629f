"""What there is to tell about an event, from the event as the API shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from console.fleet.moments import moment, seconds_of
from console.fleet.outcomes import outcome_words
from console.fleet.values import Decision, KnownEvent, Observation
from console.notify.notice import Notice
from console.text import visible

ESCALATE_SECONDS: Final = 300.0
"""Before notBefore: then an event without a decision is told once more."""
_NAMED: Final = 5
_TRANSITIONS: Final = {"scheduled": "scheduled", "started": "started", "ended": "ended"}
FAILURES: Final = ("failed", "rejected", "unanswered")


def of_open(item: Mapping[str, Any], now: float) -> list[Notice]:
    """A decision that is due, and one that nothing was decided about shortly before its time."""
    state = item["decision"]["state"]
    if state not in ("due", "second"):
        return []
    start = seconds_of(item["notBefore"])
    found = []
    who = "a decision is due" if state == "due" else "a second person is needed"
    by = "" if start is None else f" It starts at {moment(start)} whatever is decided."
    fact: tuple[object, ...] = (item["fingerprint"], state)
    found.append(
        _about(
            "decision-due",
            item,
            fact=fact,
            at=now,
            title=f"{_what(item)}: {who}",
            text=f"{_whom(item)}{by}",
        )
    )
    if start is not None and now >= start - ESCALATE_SECONDS:
        found.append(
            _about(
                "undecided",
                item,
                fact=(item["fingerprint"], item["notBefore"]),
                at=now,
                title=f"{_what(item)}: not decided, and it starts soon",
                text=f"{_whom(item)} It may start at {moment(start)}.",
            )
        )
    return found


def over(known: KnownEvent, said: Iterable[Observation]) -> Notice:
    """An event that has ended, with what it cost, as the VMs say that it names."""
    event = known.event
    item, status = _item(known), known.shown.facts.status
    costs = sorted(filter(None, map(_cost, said)), reverse=True)
    cost = f" The longest interruption measured: {costs[0]:.1f} s." if costs else ""
    return _about(
        "event-over",
        item,
        fact=(),
        at=event.shown_at,
        title=f"{_what(item)}: {status.lower()}",
        text=f"{_whom(item)}{cost}",
        more={"interruptionSeconds": costs[0] if costs else None},
    )


def approval_failed(decision: Decision, known: KnownEvent | None) -> Notice:
    """An approval that did not get through; `known` is what is known of its event now."""
    item = {"eventId": decision.event_id, "resources": []} if known is None else _item(known)
    outcome = decision.outcome or ""
    words = visible(outcome_words(outcome, decision.outcome_reason))
    return _about(
        "approval-failed",
        item,
        fact=(decision.id,),
        at=decision.over_at or decision.at,
        title=f"{_what(item)}: the approval of {visible(decision.actor)} {_ended(outcome)}",
        text=f"{_whom(item)} {words}",
        more={"outcome": outcome},
    )


def path_of(event_id: str) -> str:
    """The page of an event."""
    return f"/events/{quote(event_id, safe='')}"


def azure(item: Mapping[str, Any]) -> dict[str, Any]:
    """The event as records have it in `data.event`."""
    return {
        "eventId": item["eventId"],
        "eventType": item.get("eventType"),
        "resources": [resource["name"] for resource in item["resources"]],
        "eventStatus": item.get("eventStatus") or "Unknown",
        "notBefore": item.get("notBefore"),
        "description": item.get("description"),
        "eventSource": item.get("eventSource"),
        "durationInSeconds": item.get("durationInSeconds"),
    }


def _item(known: KnownEvent) -> dict[str, Any]:
    """As the API shows an event, but for what depends on the time."""
    facts = known.shown.facts
    return {
        "eventId": known.event.event_id,
        "eventType": facts.event_type,
        "eventStatus": facts.status,
        "eventSource": facts.event_source,
        "notBefore": facts.not_before,
        "durationInSeconds": facts.duration,
        "description": facts.description,
        "impact": facts.impact,
        "state": known.event.state,
        "resources": [{"name": name, "vmId": None} for name in facts.resources],
    }


def _about(kind: Any, item: Mapping[str, Any], **given: Any) -> Notice:
    first: Mapping[str, Any] = next(iter(item["resources"]), {})
    return Notice(
        kind=kind,
        subject=item["eventId"],
        path=path_of(item["eventId"]),
        event=azure(item),
        transition=_TRANSITIONS.get(item.get("state", "scheduled"), "updated"),
        impact=item.get("impact"),
        vm={"vmId": first.get("vmId") or "", "name": visible(first.get("name") or "no VM")},
        **given,
    )


def _what(item: Mapping[str, Any]) -> str:
    names = [visible(resource["name"]) for resource in item["resources"]]
    kind = visible(item.get("eventType") or "Event")
    return f"{kind} of {_listed(names)}" if names else kind


def _whom(item: Mapping[str, Any]) -> str:
    count = len(item["resources"])
    return f"The event names {count} VM{'' if count == 1 else 's'}."


def _listed(names: Iterable[str]) -> str:
    named = list(names)
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more


def _ended(outcome: str) -> str:
    return {"failed": "failed", "rejected": "was rejected"}.get(outcome, "was not answered")


def _cost(observation: Observation) -> float | None:
    measured = (observation.facts.pause, observation.facts.downtime)
    return max((each for each in measured if each is not None), default=None)
