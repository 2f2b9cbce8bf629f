"""The state machine of a preparation, as one table; values in, values out.

A preparation begins as `preparing`: a command, an approval that waits, or the deadline asked for
it, and a record that asks the sink is in the outbox. `Preparations` finds out what happened and
carries out what the table says. docs/prepare-and-recover.md shows the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from wire.preparation import State


class Trigger(Enum):
    """What changed for a preparation since the last `Preparations.follow`."""

    OVER = "the event is over, or does not name this VM any more"
    CHANGED = "the event has changed"
    DONE = "the program ended with 0"
    GIVEN_UP = "the program gave up"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationStep:
    """The next state of a preparation, and what is recorded."""

    state: State
    reason: str | None = None
    """The reason of a state `failed`; None if the program gave one."""


# fmt: off
TABLE: Final[Mapping[State, Mapping[Trigger, PreparationStep]]] = {
    "preparing": {
        Trigger.DONE: PreparationStep(state="prepared"),
        Trigger.GIVEN_UP: PreparationStep(state="failed"),
        Trigger.CHANGED: PreparationStep(state="failed", reason="event_changed"),
        Trigger.OVER: PreparationStep(state="failed", reason="unknown_event"),
    },
    # The row goes once the program has been told that the event is over: that is `recovered`.
    "prepared": {},
    # The program gave up, and a person has had it tried again.
    "failed": {Trigger.DONE: PreparationStep(state="prepared")},
    "recovered": {},
}
# fmt: on


def after(state: State, trigger: Trigger) -> PreparationStep | None:
    """Return the next step of a preparation; None if its state stays."""
    return TABLE[state].get(trigger)


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text."""
    return [
        (state, trigger.value, f"{step.state}{f': {step.reason}' if step.reason else ''}")
        for state, row in TABLE.items()
        for trigger, step in row.items()
    ]
