"""Stories of the demo's VMs, repeated for ever, each on its own thread. The notice is Azure's own;
what follows takes less time than it does at Azure, so that there is more to see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from console.demo.vms import DemoVm, SharedEvent

_UPDATE: Final = "Host server is undergoing maintenance."
_SLICE_SECONDS: Final = 0.25
"""The time between two checks for an approval, in seconds."""
Pause = Callable[[float], bool]
"""Wait for some seconds; return True if the demo ends meanwhile."""


def host_update(vms: Sequence[DemoVm], wait: Pause) -> None:
    """Update the host of three VMs: one event names them all, and waits for an approval."""
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


def overlap(cluster: Sequence[DemoVm], wait: Pause) -> None:
    """Let two events overlap on a cluster that survives one missing member: the second waits until
    the first VM is back, and their group approves both.
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


def user_reboot(vm: DemoVm, wait: Pause) -> None:
    """Restart a VM as its user: a rule of its owner approves that at once."""
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


def eviction(vm: DemoVm, wait: Pause) -> None:
    """Evict a spot VM, with Azure's notice of 30 seconds."""
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


def crash(vm: DemoVm, wait: Pause) -> None:
    """Let a bridge crash; its VM is late, then silent, until the bridge is back."""
    while not (has_looked(vm, wait) or wait(20)):
        vm.bridge.kill()
        if wait(60):
            return
        vm.bridge.start()
        if has_looked(vm, wait) or wait(20):
            return


def has_looked(vm: DemoVm, wait: Pause) -> bool:
    """Wait until the VM's bridge has polled again; return True if the demo ends meanwhile."""
    before = vm.simulator.gets
    while vm.simulator.gets == before:
        if wait(_SLICE_SECONDS):
            return True
    return False


class Stories:
    """Runs stories until the demo ends."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds; return True at once if the demo ends."""
        return self._stop.wait(seconds)

    def start(self, story: Callable[[], None]) -> None:
        """Start a story on its own thread."""
        thread = threading.Thread(target=story, name="demo-story", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End all stories, and wait for their end."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _until_approved(event: SharedEvent, seconds: float, wait: Pause) -> bool:
    """Wait for an approval, at most so many seconds; return True if the demo ends meanwhile."""
    left = seconds
    while left > 0 and not event.is_approved:
        if wait(_SLICE_SECONDS):
            return True
        left -= _SLICE_SECONDS
    return False
