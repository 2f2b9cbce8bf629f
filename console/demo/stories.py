"""Stories of the demo's VMs, again and again, each in a thread of its own.

The notice is Azure's own; what comes after it is shorter, so that there is more to see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from console.demo.vms import DemoVm, SharedEvent

_UPDATE: Final = "Host server is undergoing maintenance."
_SLICE: Final = 0.25
"""Seconds between two looks for an approval."""
Wait = Callable[[float], bool]
"""Let seconds pass; True if the demo ends meanwhile."""


def host_update(vms: Sequence[DemoVm], wait: Wait) -> None:
    """The host of three VMs is updated: one event names them all. It waits to be approved."""
    while True:
        event = SharedEvent(
            vms,
            "Freeze",
            notice=15 * 60,
            duration=9,
            description=_UPDATE,
        )
        if _until_approved(event, 15 * 60, wait) or wait(5):
            return
        event.start()
        if wait(30):
            return
        event.end()
        if wait(20):
            return


def overlap(cluster: Sequence[DemoVm], wait: Wait) -> None:
    """Two events overlap on two members of a cluster that survives one away: the second waits until
    the first is back, and both are approved by their group.
    """
    for number in count():
        if has_looked(cluster[0], wait) or wait(8):
            return
        pair = [cluster[(number + more) % len(cluster)] for more in (0, 1)]
        both = []
        for vm in pair:
            both.append(SharedEvent([vm], "Reboot", notice=15 * 60, description=_UPDATE))
            if wait(3):
                return
        for event in both:
            if _until_approved(event, 15 * 60, wait) or wait(5):
                return
            event.start()
            if wait(12):
                return
            event.end()
        if wait(30):
            return


def user_reboot(vm: DemoVm, wait: Wait) -> None:
    """Somebody restarts a VM, whose owner has a rule for that: it is approved at once."""
    while not wait(12):
        event = SharedEvent(
            [vm],
            "Reboot",
            notice=15 * 60,
            source="User",
            description="A user asked for a restart.",
        )
        if _until_approved(event, 15 * 60, wait) or wait(12):
            return
        event.start()
        if wait(12):
            return
        event.end()
        if wait(40):
            return


def eviction(vm: DemoVm, wait: Wait) -> None:
    """Azure takes a spot VM back, with the 30 seconds' notice that it gives."""
    while not wait(25):
        event = SharedEvent([vm], "Preempt", notice=30)
        if wait(31):
            return
        event.start()
        if wait(10):
            return
        event.end()
        if wait(30):
            return


def crash(vm: DemoVm, wait: Wait) -> None:
    """A bridge crashes; its VM turns late, then silent, until the bridge is back."""
    while not (has_looked(vm, wait) or wait(20)):
        vm.bridge.kill()
        if wait(60):
            return
        vm.bridge.start()
        if has_looked(vm, wait) or wait(20):
            return


def has_looked(vm: DemoVm, wait: Wait) -> bool:
    """Wait until the VM's bridge has asked for events again; True if the demo ends meanwhile."""
    before = vm.simulator.gets
    while vm.simulator.gets == before:
        if wait(_SLICE):
            return True
    return False


class Stories:
    """Runs stories until it is told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def wait(self, seconds: float) -> bool:
        """Let seconds pass; True at once if the demo ends."""
        return self._stop.wait(seconds)

    def tell(self, story: Callable[[], None]) -> None:
        """Tell a story in a thread of its own."""
        thread = threading.Thread(target=story, name="demo-story", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End all of them, and wait for that."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _until_approved(event: SharedEvent, seconds: float, wait: Wait) -> bool:
    """Wait for an approval, at most that long; True if the demo ends meanwhile."""
    left = seconds
    while left > 0 and not event.is_approved:
        if wait(_SLICE):
            return True
        left -= _SLICE
    return False
