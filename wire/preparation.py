"""The preparation: the data of a record that says how far a VM has prepared for an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from wire.fields import CLAIM, FINGERPRINT, TEXT, WORD, Field, one_of, or_null
from wire.observer import Observer

State = Literal["preparing", "prepared", "failed", "recovered"]
STATES: Final[tuple[State, ...]] = get_args(State)
PREPARED: Final = "prepared"
RECOVERED: Final = "recovered"
NONE: Final = "none"
"""The value in `…/state` for an event for which this VM was not asked to prepare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationData(Observer):
    """`data` of a record about a preparation."""

    evt: Annotated[str, Field(CLAIM, "EventId that the VM prepares for")]
    evh: Annotated[str, Field(FINGERPRINT, "Fingerprint of the state of the event")]
    sink: Annotated[str, Field(WORD, "Name of the sink that prepares")]
    cause: Annotated[
        str,
        Field(
            CLAIM,
            "Who asked: command:<jti>, approval:<jti> of the approval that waits, or deadline",
        ),
    ]
    state: Annotated[
        str,
        Field(
            one_of(*STATES),
            "preparing (the program was asked), prepared (it ended with 0), failed (it gave up, or "
            "the event changed or ended first), recovered (it ended with 0 after the event)",
        ),
    ]
    reason: Annotated[str | None, Field(or_null(TEXT), "Why, if the state is failed; else null")]
