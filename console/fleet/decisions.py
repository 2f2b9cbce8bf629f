"""What was decided about an event: one word, from its state, its receipts and who can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from console.fleet.values import Receipt

DecisionState = Literal["due", "second", "left", "approving", "approved", "none"]
_UNDER_WAY: Final = ("accepted", "posted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a decision stands; `at` in seconds since 1970."""

    state: DecisionState
    by: str | None = None
    reason: str | None = None
    at: float | None = None


def decision(event_state: str, receipts: Sequence[Receipt], *, can_be_asked: bool) -> Decision:
    """The decision on an event; `can_be_asked`: a heard witness that it names takes commands."""
    newest: dict[str, Receipt] = {}
    for receipt in receipts:
        if receipt.facts.state == "confirmed":
            return Decision(state="approved", by=receipt.facts.actor, at=receipt.at)
        newest[receipt.facts.jti] = receipt
    if event_state != "ended":
        for receipt in newest.values():
            if receipt.facts.state in _UNDER_WAY:
                return Decision(state="approving", by=receipt.facts.actor, at=receipt.at)
    if event_state == "scheduled" and can_be_asked:
        return Decision(state="due")
    return Decision(state="none")
