"""How a bridge is heard: one word per VM, from its row and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from console.fleet.values import DEFAULT_INTERVAL, Vm

Contact = Literal["heard", "late", "silent", "stopped", "learning", "retired"]
CONTACTS: Final[tuple[Contact, ...]] = (
    "heard",
    "late",
    "silent",
    "stopped",
    "learning",
    "retired",
)
_INTERVALS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Since when the console listens, and how patient it is."""

    started_at: float
    silent_after: float | None = None
    """Seconds for every VM; three of its own heartbeat intervals if None."""
    since: Mapping[str, float | None] = field(default_factory=dict)
    """For each source since when it is connected; None while it is not."""
    are_all: bool = False
    """Whether no other console listens to sources of its own."""

    def since_when(self, source: str) -> float | None:
        """Since when the console would have heard from that source; None if it is deaf."""
        since = self.since.get(source, self.started_at)
        return None if since is None else max(since, self.started_at)


def silent_after(vm: Vm, ears: Ears) -> float:
    """Seconds without a word after which the VM is silent."""
    if ears.silent_after is not None:
        return ears.silent_after
    return _INTERVALS * (vm.interval or DEFAULT_INTERVAL)


def contact(vm: Vm, now: float, ears: Ears) -> Contact:
    """How the VM's bridge is heard."""
    if vm.retired_at is not None:
        return "retired"
    if vm.stopped_at is not None:
        return "stopped"
    if vm.lost_at is not None:
        return "silent"
    patience = silent_after(vm, ears)
    age = now - vm.heard_at
    since = ears.since_when(vm.heard_by)
    if vm.heard_at < ears.started_at and now - ears.started_at < patience:
        return "learning"
    if age > patience:
        # The console was deaf for a part of that time: the VM may well have spoken.
        deaf = since is None or (vm.heard_at < since and now - since < patience)
        return "learning" if deaf else "silent"
    return "late" if age > patience / 2 else "heard"
