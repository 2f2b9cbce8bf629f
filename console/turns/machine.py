"""The states of a turn as a table: what can happen in each state, and to which state it leads.

This file decides nothing and does nothing. `moves` finds out what happened, and
`console/approvals/turns.py` writes it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

State = Literal[
    "waiting",
    "preparing",
    "prepared",
    "approving",
    "away",
    "over",
    "forced",
    "failed",
    "stuck",
]
Trigger = Literal[
    "taken",
    "all_prepared",
    "not_prepared",
    "unprepared",
    "changed",
    "outdated",
    "approve_sent",
    "approved_by_person",
    "not_approved",
    "started",
    "gone",
    "returned",
    "returned_untaken",
    "never_fits",
    "ungrouped",
    "all_back",
    "hour_passed",
    "unrecovered",
    "ended_by_person",
]

HOLDING: Final[frozenset[State]] = frozenset(
    {"preparing", "prepared", "approving", "failed", "away", "stuck"}
)
"""The states in which the VMs of the event hold a turn: they count as away."""

TABLE: Final[dict[State, dict[Trigger, State]]] = {
    "waiting": {
        "taken": "preparing",
        "never_fits": "forced",
        "ungrouped": "over",
        "started": "forced",
        "gone": "over",
        "unrecovered": "away",
        "changed": "waiting",
    },
    "preparing": {
        "all_prepared": "prepared",
        "not_prepared": "failed",
        "changed": "preparing",
        "outdated": "failed",
        "started": "away",
        "gone": "away",
        "ended_by_person": "over",
    },
    "prepared": {
        "approve_sent": "approving",
        "unprepared": "preparing",
        "not_prepared": "failed",
        "changed": "preparing",
        "outdated": "failed",
        "started": "away",
        "gone": "away",
        "ended_by_person": "over",
    },
    "approving": {
        "not_approved": "failed",
        "changed": "preparing",
        "outdated": "failed",
        "started": "away",
        "gone": "away",
        "ended_by_person": "over",
    },
    # Azure starts the event at its time. If the event changes, its VMs prepare again. A person may
    # take the turn once more, or approve the event as it is.
    "failed": {
        "taken": "preparing",
        "approved_by_person": "approving",
        "changed": "preparing",
        "outdated": "failed",
        "started": "away",
        "gone": "away",
        "ended_by_person": "over",
    },
    # If an event that was over is announced again, its VMs prepare again. If it never had a turn,
    # because its VMs had prepared without one, it waits for its turn. If it had started, and a
    # document left it out, it is not over.
    "away": {
        "started": "away",
        "returned": "preparing",
        "returned_untaken": "waiting",
        "outdated": "failed",
        "all_back": "over",
        "hour_passed": "stuck",
        "ended_by_person": "over",
    },
    "stuck": {
        "started": "away",
        "returned": "preparing",
        "returned_untaken": "waiting",
        "outdated": "failed",
        "all_back": "over",
        "ended_by_person": "over",
    },
    # A VM that has prepared without a turn, and has not recovered, counts as away.
    "forced": {
        "taken": "preparing",
        "ungrouped": "over",
        "gone": "over",
        "unrecovered": "away",
        "changed": "waiting",
    },
    "over": {},
}
"""The next state by state and trigger. A trigger that a state does not list leaves it as it is."""


def after(state: State, trigger: Trigger) -> State:
    """Return the state after a trigger; the same state if the table has no entry for it."""
    return TABLE[state].get(trigger, state)


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: state, trigger and next state."""
    return [
        (state, trigger, then) for state, ways in TABLE.items() for trigger, then in ways.items()
    ]
