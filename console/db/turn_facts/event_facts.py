"""The facts of events from which turns are decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal

from sqlalchemy import Connection

from console.db.decisions.decision_rows import approval_counts
from console.fleet.commands import under_way
from console.fleet.decisions import is_left
from console.fleet.outcomes import BY_CONSOLE
from console.fleet.values.decision import Receipt
from console.fleet.values.event import KnownEvent
from console.fleet.values.keys import EventKey, name_key
from console.turns.away import STARTED
from console.turns.facts import EventFacts, Turn

_FIRST_PAUSE_SECONDS: Final = 60.0
"""The pause before an event is approved again for the first time."""
_MOST_DOUBLINGS: Final = 5
_MAY_PASS: Final = (
    "no_answer",
    "expired",
    "not_yet_valid",
    "rate_limited",
    "unknown_event",
    "event_changed",
    "changed",
)
"""The reasons of a failed approval after which no VM acts on it, and another may succeed."""


def event_facts_of(
    known: KnownEvent,
    before: Mapping[EventKey, Turn],
    *,
    four_eyes: int = 0,
    again_at: float | None = None,
    started_for: Mapping[str, float] = MappingProxyType({}),
) -> EventFacts:
    """Return the facts of an open event. `before`: the turns of events so far; `again_at`: when it
    may be approved again; `started_for`: the VMs that report its start, with the times.
    """
    event = known.event
    facts = known.shown.report
    reported = facts.event
    named = known.named.values()
    turn = before.get(event.key)
    is_ended = turn is not None and turn.fingerprint == facts.fingerprint
    there = [each for each in named if each.contact != "retired"]
    names = {each.name_key for each in there}
    contents = {each.content_hash for each in named if each.contact == "heard"} - {None}
    decision = known.decided.decision
    # Another VM may report the event too, with other names: its word holds up no turn.
    receipts = [each for each in known.receipts if each.vm_id in {one.vm_id for one in there}]
    return EventFacts(
        key=event.key,
        fingerprint=facts.fingerprint,
        status=STARTED if event.state == "started" else reported.event_status,
        named=frozenset(each.vm_id for each in there),
        reported_by=frozenset(each.vm_id for each in there if each.content_hash is not None),
        shown_by=event.shown_by,
        unknown_names=tuple(n for n in reported.resources if name_key(n) not in names),
        reported=reported,
        not_before=event.not_before,
        started_at=known.shown.time if event.state == "started" else None,
        is_left=decision is not None and is_left(decision, event.state, facts.fingerprint),
        is_disputed=not facts.is_proven or bool(contents - {known.shown.content_hash}),
        needs_two=0 < four_eyes <= len(reported.resources),
        first_actor=_first_actor(known),
        ended_by=turn.ended_by if turn is not None and is_ended else None,
        approval=_approval(known),
        again_at=again_at,
        may_begin=bool(under_way(receipts)) or any(map(_may_begin, receipts)),
        started_for=started_for,
    )


def _first_actor(known: KnownEvent) -> str | None:
    """Return the first of two persons, who has approved this state of the event, while the approval
    of the second is not written; or None.
    """
    decision = known.decided.decision
    if decision is None or decision.kind != "approve" or decision.state != "second":
        return None
    is_this_state = decision.fingerprint == known.shown.report.fingerprint
    return decision.actor if is_this_state else None


def _may_begin(receipt: Receipt) -> bool:
    """Check whether a receipt says that Azure may have received the approval. After `expired` it
    has not: the bridge gives up for that reason only before a request can have worked.
    """
    state = receipt.content.state
    reason = receipt.content.reason
    return state in ("posted", "confirmed") or (state, reason) == ("failed", "imds_unreachable")


def _approval(known: KnownEvent) -> Literal["open", "confirmed", "failed"] | None:
    """Return the state of the newest approval of this state of the event; one by a rule or on a VM
    counts too if it came before the console's.
    """
    decision = known.decided.decision
    if decision is None or decision.kind != "approve":
        return None
    if decision.fingerprint != known.shown.report.fingerprint:
        return None
    if decision.state != "over":
        return "open" if decision.state == "open" else None
    if decision.outcome == "overtaken" and decision.outcome_reason not in BY_CONSOLE:
        others = [each for each in known.receipts if each.content.actor == decision.outcome_reason]
        if under_way(others):
            return "open"
        has_failed = others and all(each.content.state != "confirmed" for each in others)
        return "failed" if has_failed else "confirmed"
    return "confirmed" if decision.outcome == "confirmed" else "failed"


def next_approval_times(
    connection: Connection, pending: Iterable[KnownEvent]
) -> dict[EventKey, float]:
    """Return when events whose approval failed for a reason that may pass may be approved again, by
    key: after a pause that doubles each time.
    """
    failed = {
        each.event.key: decision
        for each in pending
        if (decision := each.decided.decision) is not None
        and decision.over_at is not None
        and decision.outcome_reason in _MAY_PASS
    }
    tries = approval_counts(connection, (key.event_id for key in failed))
    return {
        key: (each.over_at or 0.0)
        + _FIRST_PAUSE_SECONDS * 2 ** min(tries[(*key, each.fingerprint)] - 1, _MOST_DOUBLINGS)
        for key, each in failed.items()
    }
