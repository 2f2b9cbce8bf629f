"""The held polls of the HTTPS channel: at most one for each VM."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

RESEND_SECONDS: Final = 2.0
"""A command that was fetched and has no receipt is sent again after this time."""

Receive = Callable[[], Awaitable[Any]]


class WakeReason(enum.Enum):
    """The reason why a poll is not held any longer."""

    CHECK = enum.auto()
    """There may be a command, or its time is over."""
    REPLACED = enum.auto()
    """The VM has polled again."""
    GONE = enum.auto()
    """The client has closed the connection."""


@dataclass(slots=True)
class _HeldPoll:
    """A held poll. It is woken by ending its timeout now, which needs no further task."""

    timeout: asyncio.Timeout
    is_replaced: bool = False

    def wake(self) -> None:
        if not self.timeout.expired():
            self.timeout.reschedule(0)


@dataclass(slots=True)
class _Offer:
    """The commands that one VM may fetch, or may have fetched already."""

    jtis: set[str] = field(default_factory=set)
    due: float = 0.0
    """When they are sent, on the loop's clock."""


class HeldPolls:
    """Holds the polls of VMs, and knows which of them may have commands; used on the event loop's
    thread.
    """

    def __init__(self) -> None:
        self._held: dict[str, _HeldPoll] = {}
        self._offers: dict[str, _Offer] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False
        self.refused_polls = 0
        """How many requests had another token than that VM's."""
        self.most = 10_000
        """How many polls may be held: one for each VM that a console supports, or fewer if the
        process may not open as many files.
        """

    def __len__(self) -> int:
        """Return how many polls are held."""
        return len(self._held)

    def start(self) -> None:
        """Allow `offer` from any thread from now on. Call it on the event loop."""
        self._loop = asyncio.get_running_loop()

    def offer(self, vm_id: str, jti: str) -> None:
        """Note that there is a command for that VM. May be called from any thread; a known jti
        changes nothing.
        """
        if self._loop is None or self._loop.is_closed():
            self._offer(vm_id, jti)
        else:
            self._loop.call_soon_threadsafe(self._offer, vm_id, jti)

    def wake(self, vm_id: str) -> None:
        """Wake the VM's poll, as after a change of its token."""
        held = self._held.pop(vm_id, None)
        if held is not None:
            held.wake()

    def wake_all(self) -> None:
        """Wake every poll."""
        for vm_id in list(self._held):
            self.wake(vm_id)

    def close(self) -> None:
        """Answer every poll now, and hold no more: the console stops."""
        self.closed = True
        self.wake_all()

    def has_room_for(self, vm_id: str) -> bool:
        """Check whether a poll of that VM can be held."""
        return len(self._held) < self.most or vm_id in self._held

    def due(self, vm_id: str) -> float | None:
        """Return when the VM's commands are to be sent, on the loop's clock; None if it has
        none.
        """
        offer = self._offers.get(vm_id)
        return None if offer is None else offer.due

    def note_sent(self, vm_id: str, *, now: float) -> None:
        """Note that the VM was sent its commands; without a receipt it gets them again."""
        if vm_id in self._offers:
            self._offers[vm_id].due = now + RESEND_SECONDS

    def note_nothing_for(self, vm_id: str, *, now: float) -> None:
        """Note that the VM had no open command when `note_sent` was called at that moment; a newer
        offer stays.
        """
        if self.due(vm_id) == now + RESEND_SECONDS:
            del self._offers[vm_id]

    async def hold(self, vm_id: str, seconds: float, receive: Receive) -> WakeReason:
        """Wait until something wakes the VM's poll, or a newer one replaces it."""
        held = None
        try:
            async with asyncio.timeout(seconds) as timeout:
                held = self._enter(vm_id, _HeldPoll(timeout))
                while (await receive())["type"] != "http.disconnect":
                    pass
                return WakeReason.GONE
        except TimeoutError:
            return (
                WakeReason.REPLACED if held is not None and held.is_replaced else WakeReason.CHECK
            )
        finally:
            if self._held.get(vm_id) is held:
                self._held.pop(vm_id, None)

    def _enter(self, vm_id: str, held: _HeldPoll) -> _HeldPoll:
        older = self._held.pop(vm_id, None)
        if older is not None:
            older.is_replaced = True
            older.wake()
        self._held[vm_id] = held
        return held

    def _offer(self, vm_id: str, jti: str) -> None:
        offer = self._offers.setdefault(vm_id, _Offer())
        if jti not in offer.jtis:
            offer.jtis.add(jti)
            offer.due = 0.0
            self.wake(vm_id)
