"""The far end of a sink, as the contract of `sinks.testing` wants it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FarEnd:
    """A `sinks.testing.Destination` made of what a server can do."""

    settings: Mapping[str, Any]
    received: Callable[[], Sequence[bytes]]
    stop: Callable[[], object]
    start: Callable[[], object]
    secrets: Sequence[str] = ()
