"""A configured sink, as the outbox knows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sinks.record_choice import RecordChoice

_PREPARES: Final = " that prepares"
Accepts = Callable[[str, bool | None], bool]
"""Checks whether a sink wants a record of a type that concerns this VM or not (None: not of an
event).
"""


def role_of(kind: str, *, prepares: bool) -> str:
    """Return the role of a sink: its kind, and whether it prepares. A sink that prepares
    acknowledges records that it never sees, so its acknowledgements do not count in its plain role.
    """
    return f"{kind}{_PREPARES}" if prepares else kind


def accepted_in(role: str, choice: str) -> Accepts:
    """Return what a sink accepted in this role with this choice, as the store has them. Everything,
    if the choice is not known; and in a role that prepares, which chooses by itself.
    """
    with suppress(ValueError):
        if not role.endswith(_PREPARES):
            return RecordChoice.read(choice).accepts
    return UNKNOWN.accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A configured sink as the outbox knows it."""

    kind: str
    prepares: bool = False
    accepts: Accepts = lambda *_: True
    choice: str = ""
    """The settings that decide which records it accepts, as text; empty if they are not known."""

    @property
    def role(self) -> str:
        """The sink's role. Records that a sink of this name got in another role do not count for
        it.
        """
        return role_of(self.kind, prepares=self.prepares)


UNKNOWN: Final = Recipient(kind="")
"""Stands for a sink that is not configured."""
