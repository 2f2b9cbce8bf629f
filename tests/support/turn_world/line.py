"""The line between a VM and the console: a broker, or HTTPS. What is on it may come late, twice or
never, but what a VM sends comes in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from support.turn_world.simulation import Simulation

from console.fleet.values.decision import VmCommand

Kind = Literal["record", "state", "status"]
WILL_AFTER: Final = 90.0
"""Seconds without a connection after which the broker publishes the will of a VM."""


@dataclass(frozen=True)
class CommandOnTheWay:
    """A command on its way to a VM."""

    at: float
    expires_at: float
    token: bytes
    command: VmCommand


class VmLine:
    """The line of one VM; `is_pull`: it only calls out, over HTTPS."""

    def __init__(self, simulation: Simulation, slowness: float, *, is_pull: bool) -> None:
        self.is_pull = is_pull
        self.is_whole = True
        """Whether the network lets anything through."""
        self.is_connected = False
        self.inbox: list[CommandOnTheWay] = []
        self.earlier: list[tuple[Kind, bytes]] = []
        """What was retained of the VM, the newest of each kind last."""
        self._simulation = simulation
        self._slowness = slowness
        """The longest time for which a message is under way, in seconds."""
        self._outgoing: deque[tuple[float, Kind, bytes]] = deque()
        self._cut_at: float | None = None

    def delay(self) -> float:
        """Return how long a message takes."""
        if self._simulation.calm:
            return 0.1
        draw = self._simulation.random
        return draw.random() * self._slowness if draw.random() < 0.5 else 0.05

    def connect(self) -> None:
        """Connect; the broker publishes no will."""
        self.is_connected = True
        self._cut_at = None

    def break_off(self) -> None:
        """Lose the connection; the broker publishes the will after a while."""
        if self.is_connected:
            self.is_connected = False
            self._cut_at = self._simulation.now

    def is_will_due(self) -> bool:
        """Check whether the broker publishes the will now."""
        if self._cut_at is None or self._simulation.now - self._cut_at <= WILL_AFTER:
            return False
        self._cut_at = None
        return not self.is_pull

    def put(self, kind: Kind, payload: bytes, *, at_once: bool = False) -> None:
        """Send a message to the console."""
        now = self._simulation.now
        last = self._outgoing[-1][0] if self._outgoing else 0.0
        self._outgoing.append((now if at_once else max(now + self.delay(), last), kind, payload))
        if kind != "record":
            self.earlier = [*self.earlier[-5:], (kind, payload)]

    def arrived(self) -> list[tuple[Kind, bytes]]:
        """Return what has arrived at the console; some of it twice."""
        found = []
        while self._outgoing and self._outgoing[0][0] <= self._simulation.now:
            _, kind, payload = self._outgoing.popleft()
            found += [(kind, payload)] * (2 if self._simulation.chance(0.02) else 1)
        return found

    def retained(self) -> list[tuple[Kind, bytes]]:
        """Return the newest status and state, as a console that connects again gets them."""
        return list({kind: (kind, payload) for kind, payload in self.earlier}.values())

    def received(self) -> list[CommandOnTheWay]:
        """Return the commands that have come to the VM and have not expired on the way."""
        now = self._simulation.now
        come = [each for each in self.inbox if each.at <= now]
        self.inbox = [each for each in self.inbox if each.at > now]
        return [each for each in come if now < each.expires_at]
