"""When VMs last asked the HTTPS channel: at once in memory, now and then in the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from console.fleet.index import Fleet

WRITE_SECONDS: Final = 20.0
"""From one row of a VM to the next: other consoles, and the next run, count a VM for a minute."""


class Asked:
    """What is in memory, and which of it is not written yet; used on the event loop's thread."""

    def __init__(self, fleet: Fleet) -> None:
        self._times = fleet.asked
        self._unwritten: set[str] = set()
        self._written: dict[str, float] = {}

    def note(self, vm_id: str, now: float) -> None:
        """A VM asks at this moment, in seconds since 1970."""
        self._times[vm_id] = now
        self._unwritten.add(vm_id)

    def put(self, times: Mapping[str, float]) -> None:
        """Rows as committed, by this console or another."""
        for vm_id, at in times.items():
            self._times[vm_id] = max(at, self._times.get(vm_id, at))

    def forget(self, vm_ids: Iterable[str] | None) -> None:
        """The tokens of these VMs, or of all, are good no longer."""
        for vm_id in list(self._times) if vm_ids is None else vm_ids:
            self._times.pop(vm_id, None)
            self._unwritten.discard(vm_id)

    def due(self, now: float) -> dict[str, float]:
        """What should be written at this moment, by vmId."""
        return {
            vm_id: self._times[vm_id]
            for vm_id in self._unwritten
            if now - self._written.get(vm_id, 0.0) >= WRITE_SECONDS
        }

    def written(self, times: Mapping[str, float]) -> None:
        """These rows have been committed."""
        self._written |= times
        self._unwritten -= {vm_id for vm_id, at in times.items() if self._times.get(vm_id) == at}
