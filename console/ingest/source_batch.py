"""A delivery: the messages that a source passes on, and the callback that reports their commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from console.db.sources.checkpoints import Checkpoint
from console.records.incoming import IncomingMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedMessage:
    """A message that is not stored but quarantined, with the reason."""

    reason: str
    message: str
    sample: bytes
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBatch:
    """Messages that came in together: they are committed together, and then `on_end` is called.

    `on_end(True)`: committed; the source may acknowledge. `on_end(False)`: the console stops before
    the commit; the source must not acknowledge. It is called on the writer's thread and must return
    at once.
    """

    source: str
    items: Sequence[IncomingMessage | QuarantinedMessage]
    on_end: Callable[[bool], None]
    size: int = 0
    """In bytes, as received."""
    checkpoint: Checkpoint | None = None
