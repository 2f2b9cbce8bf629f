"""Changes of a decision: a claim, by which a console sends its command, and an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from console.fleet.values.decision import Decision

LEASE_SECONDS: Final = 5.0
"""For how long other consoles leave the sending of a command to the one that has claimed it."""


def with_claim(decision: Decision, run_id: str, now: float) -> Decision:
    """Return the decision as claimed by a run of a console, which sends its command now."""
    return replace(decision, claimed_by=run_id, claimed_until=now + LEASE_SECONDS)


def with_outcome(decision: Decision, outcome: str, reason: str | None, at: float) -> Decision:
    """Return the decision with its end."""
    return replace(
        decision,
        state="over",
        outcome=outcome,
        outcome_reason=reason,
        over_at=at,
        claimed_by=None,
        claimed_until=None,
    )
