"""A delivery: what a source hands over, and how it hears of the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from console.records.incoming import Incoming


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Bytes that are not a record of ours."""

    reason: str
    message: str
    sample: bytes
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a partition has been read; committed with the records up to there."""

    hub: str
    consumer_group: str
    partition: str
    offset: str
    sequence_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What came in at once: it is committed as a whole, and then `done` is called.

    `done(True)`: committed; the source may acknowledge. `done(False)`: the console ends before
    that; the source must not. It is called on the writer's thread and must return at once.
    """

    source: str
    items: Sequence[Incoming | Refused]
    done: Callable[[bool], None]
    size: int = 0
    """Bytes, as they came in."""
    checkpoint: Checkpoint | None = None
