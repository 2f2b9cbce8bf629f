"""The state machine of a preparation, as one table; values in, values out.

A preparation begins as `preparing`: a command, an approval that waits, or the deadline asked for
it, and a record that asks the sink is in the outbox. `Preparations` finds out what happened, and
`OpenPreparations` carries out what the table says. docs/prepare-and-recover.md shows the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bridge.store.preparations import Preparation
from wire.preparation import State


class PreparationStage(Enum):
    """How far a preparation is."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    FAILED = "failed"
    OVER = "over: the program is still to be told"


class PreparationCondition(Enum):
    """What happened to a preparation."""

    DONE = "the program ended with 0"
    GIVEN_UP = "the program gave up"
    CHANGED = "the event has changed"
    RETURNED = "the event has changed back to a state for which this VM is prepared"
    OVER = "the event is over, or does not name this VM any more"
    RECOVERED = "the program was told that the event is over, and ended with 0"
    NOT_RECOVERED = "the program was told that the event is over, and gave up"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationStep:
    """The next step of a preparation."""

    state: State | None = None
    """The state that is recorded now; with None nothing is recorded, and the state stays."""
    reason: str | None = None
    """The reason of a state `failed`; None if the program gave one."""
    is_over: bool = False
    """Whether the preparation counts no more."""

    def __str__(self) -> str:
        if self.state is None:
            return PreparationStage.OVER.value
        state = f"{self.state}: {self.reason}" if self.reason else self.state
        return f"{state}, and over" if self.is_over and self.state != "recovered" else state


_PREPARED: Final = PreparationStep(state="prepared")
_OVER: Final = PreparationStep(is_over=True)
# The stored preparation is deleted.
_RECOVERED: Final = PreparationStep(state="recovered", is_over=True)
# It is kept: a person may have the program tried again.
_NOT_RECOVERED: Final = PreparationStep(state="failed", is_over=True)

TABLE: Final[Mapping[PreparationStage, Mapping[PreparationCondition, PreparationStep]]] = {
    PreparationStage.PREPARING: {
        PreparationCondition.DONE: _PREPARED,
        PreparationCondition.GIVEN_UP: PreparationStep(state="failed"),
        PreparationCondition.CHANGED: PreparationStep(
            state="failed", reason="event_changed", is_over=True
        ),
        PreparationCondition.OVER: PreparationStep(
            state="failed", reason="unknown_event", is_over=True
        ),
        PreparationCondition.RECOVERED: _RECOVERED,
        PreparationCondition.NOT_RECOVERED: _NOT_RECOVERED,
    },
    # After a change this counts again if the event changes back.
    PreparationStage.PREPARED: {
        PreparationCondition.RETURNED: _PREPARED,
        PreparationCondition.OVER: _OVER,
        PreparationCondition.RECOVERED: _RECOVERED,
        PreparationCondition.NOT_RECOVERED: _NOT_RECOVERED,
    },
    # The program gave up. A person may have it tried again.
    PreparationStage.FAILED: {
        PreparationCondition.DONE: _PREPARED,
        PreparationCondition.CHANGED: _OVER,
        PreparationCondition.OVER: _OVER,
        PreparationCondition.RECOVERED: _RECOVERED,
        PreparationCondition.NOT_RECOVERED: _NOT_RECOVERED,
    },
    PreparationStage.OVER: {
        PreparationCondition.RECOVERED: _RECOVERED,
        PreparationCondition.NOT_RECOVERED: _NOT_RECOVERED,
    },
}
_STAGES: Final = {
    "preparing": PreparationStage.PREPARING,
    "prepared": PreparationStage.PREPARED,
    "failed": PreparationStage.FAILED,
}


def stage_of(preparation: Preparation) -> PreparationStage:
    """Return the stage of a preparation, as the store has it."""
    return PreparationStage.OVER if preparation.is_over else _STAGES[preparation.state]


def next_step(preparation: Preparation, condition: PreparationCondition) -> PreparationStep | None:
    """Return the next step of a preparation; None if nothing changes."""
    return TABLE[stage_of(preparation)].get(condition)


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: stage, condition, next step."""
    return [
        (stage.value, condition.value, str(step))
        for stage, row in TABLE.items()
        for condition, step in row.items()
    ]
