"""Who works on an event or a VM."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A person who works on an event or a VM, until a time."""

    actor: str
    until: float
