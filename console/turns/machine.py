"""The states of a turn as a table: which thing that happens leads from which state to which.

This file decides nothing and does nothing. `schedule` finds out what happened, and
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
    # Azure starts the event at its time. A changed event is another chance to prepare, a person may
    # take the turn up again, and may have the event approved as it is.
    "failed": {
        "taken": "preparing",
        "approved_by_person": "approving",
        "changed": "preparing",
        "outdated": "failed",
        "started": "away",
        "gone": "away",
        "ended_by_person": "over",
    },
    # An event that was over and is announced again has to be prepared again. One that never had a
    # turn, because its VMs had prepared by themselves, waits for it.
    "away": {
        "returned": "preparing",
        "returned_untaken": "waiting",
        "outdated": "failed",
        "all_back": "over",
        "hour_passed": "stuck",
        "ended_by_person": "over",
    },
    "stuck": {
        "returned": "preparing",
        "returned_untaken": "waiting",
        "outdated": "failed",
        "all_back": "over",
        "ended_by_person": "over",
    },
    # A VM that has prepared without a turn, and has not recovered, is away all the same.
    "forced": {
        "taken": "preparing",
        "ungrouped": "over",
        "gone": "over",
        "unrecovered": "away",
        "changed": "waiting",
    },
    "over": {},
}
"""For each state, what can happen in it and where that leads. What is not here changes nothing."""


def after(state: State, trigger: Trigger) -> State:
    """The state after something happened; the same state if the table has no entry for it."""
    return TABLE[state].get(trigger, state)


def printed() -> list[Sequence[str]]:
    """The table as rows of text: state, trigger and next state."""
    return [
        (state, trigger, then) for state, ways in TABLE.items() for trigger, then in ways.items()
    ]
