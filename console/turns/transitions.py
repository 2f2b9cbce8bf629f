"""The states of a turn, as one table; values in, values out.

A turn begins as `waiting`. `what_happened` finds the condition, and `after_condition` of
`changed_turns.py` returns the turn after it. docs/console-reference.md shows the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from console.fleet.values.turn import TurnState


class TurnCondition(Enum):
    """What happened to a turn."""

    GIVEN = "the event gets its turn"
    NEVER_FITS = "the event names more VMs of a group than may be away"
    UNGROUPED = "no group has a VM of the event any more"
    CHANGED = "the event has changed"
    OUTDATED = "the event has changed, and what approved it does not approve it any more"
    ALL_PREPARED = "every VM is prepared, or has nothing to prepare"
    UNPREPARED = "a VM is not prepared any more"
    NOT_PREPARED = "a VM did not prepare, or the event may not be approved any more"
    APPROVED = "the approval is sent"
    NOT_APPROVED = "the approval has failed"
    STARTED = "Azure has started the event"
    GONE = "the event is over"
    UNRECOVERED = "the event is over, and a VM that prepared without a turn has not recovered"
    RETURNED = "the event is announced again"
    RETURNED_WITHOUT_TURN = "the event is announced again, and never had a turn"
    ALL_BACK = "every VM is back"
    HOUR_PASSED = "a VM is not back an hour after the event"
    ENDED_BY_PERSON = "a person ends the turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What happened to one turn."""

    condition: TurnCondition
    reason: str | None = None
    """The new reason of the turn, as a sentence for people."""
    actor: str | None = None
    """The new actor of its approval, if that changes."""


HOLDING: Final[frozenset[TurnState]] = frozenset(
    {"preparing", "prepared", "approving", "failed", "away", "stuck"}
)
"""The states in which the VMs of the event hold a turn: they count as away."""

TABLE: Final[Mapping[TurnState, Mapping[TurnCondition, TurnState]]] = {
    "waiting": {
        TurnCondition.GIVEN: "preparing",
        TurnCondition.NEVER_FITS: "forced",
        TurnCondition.UNGROUPED: "over",
        TurnCondition.STARTED: "forced",
        TurnCondition.GONE: "over",
        TurnCondition.UNRECOVERED: "away",
        TurnCondition.CHANGED: "waiting",
    },
    "preparing": {
        TurnCondition.ALL_PREPARED: "prepared",
        TurnCondition.NOT_PREPARED: "failed",
        TurnCondition.CHANGED: "preparing",
        TurnCondition.OUTDATED: "failed",
        TurnCondition.STARTED: "away",
        TurnCondition.GONE: "away",
        TurnCondition.ENDED_BY_PERSON: "over",
    },
    "prepared": {
        TurnCondition.APPROVED: "approving",
        TurnCondition.UNPREPARED: "preparing",
        TurnCondition.NOT_PREPARED: "failed",
        TurnCondition.CHANGED: "preparing",
        TurnCondition.OUTDATED: "failed",
        TurnCondition.STARTED: "away",
        TurnCondition.GONE: "away",
        TurnCondition.ENDED_BY_PERSON: "over",
    },
    "approving": {
        TurnCondition.NOT_APPROVED: "failed",
        TurnCondition.CHANGED: "preparing",
        TurnCondition.OUTDATED: "failed",
        TurnCondition.STARTED: "away",
        TurnCondition.GONE: "away",
        TurnCondition.ENDED_BY_PERSON: "over",
    },
    # Azure starts the event at its time. If the event changes, its VMs prepare again. Its groups
    # may give it the turn once more; a person may do that too, or approve the event as it is.
    "failed": {
        TurnCondition.GIVEN: "preparing",
        TurnCondition.APPROVED: "approving",
        TurnCondition.CHANGED: "preparing",
        TurnCondition.OUTDATED: "failed",
        TurnCondition.STARTED: "away",
        TurnCondition.GONE: "away",
        TurnCondition.ENDED_BY_PERSON: "over",
    },
    # If an event that was over is announced again, its VMs prepare again. If it never had a turn,
    # because its VMs had prepared without one, it waits for its turn. If it had started, and a
    # document left it out, it is not over.
    "away": {
        TurnCondition.STARTED: "away",
        TurnCondition.RETURNED: "preparing",
        TurnCondition.RETURNED_WITHOUT_TURN: "waiting",
        TurnCondition.OUTDATED: "failed",
        TurnCondition.GONE: "away",
        TurnCondition.ALL_BACK: "over",
        TurnCondition.HOUR_PASSED: "stuck",
        TurnCondition.ENDED_BY_PERSON: "over",
    },
    "stuck": {
        TurnCondition.STARTED: "away",
        TurnCondition.RETURNED: "preparing",
        TurnCondition.RETURNED_WITHOUT_TURN: "waiting",
        TurnCondition.OUTDATED: "failed",
        TurnCondition.ALL_BACK: "over",
        TurnCondition.ENDED_BY_PERSON: "over",
    },
    # A VM that has prepared without a turn, and has not recovered, counts as away.
    "forced": {
        TurnCondition.GIVEN: "preparing",
        TurnCondition.UNGROUPED: "over",
        TurnCondition.GONE: "over",
        TurnCondition.UNRECOVERED: "away",
        TurnCondition.CHANGED: "waiting",
    },
    "over": {},
}
"""The next state by state and condition. One that a state does not list leaves it as it is."""


def next_step(state: TurnState, condition: TurnCondition) -> TurnState:
    """Return the state after a condition was met; the same state if the table does not list it."""
    return TABLE[state].get(condition, state)


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: state, what happens, next state."""
    return [
        (state, condition.value, then)
        for state, row in TABLE.items()
        for condition, then in row.items()
    ]
