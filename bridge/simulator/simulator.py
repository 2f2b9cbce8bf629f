"""`Simulator`: the stand-in for IMDS. It never listens on the real metadata address."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from bridge.clock import Clock, SystemClock
from bridge.known_api_versions import EVENTS_API_VERSIONS
from bridge.simulator.answers import SimulatedImds, SimulatedRequest, Target
from bridge.simulator.approvals import Post, Posts, Timers
from bridge.simulator.exchange import SimulatedExchange
from bridge.simulator.faults import Fault, FaultQueue, RefusedFault
from bridge.simulator.player import Player
from bridge.simulator.scenarios import scenario
from bridge.simulator.server import Listener
from bridge.simulator.timeline import SimulatedDocument, Timeline
from bridge.simulator.vm import SimulatedVm

_METADATA_ADDRESS: Final = ipaddress.ip_address("169.254.169.254")


class Simulator(Timeline):
    """An IMDS for tests and demos. Use it as a context manager, or call `start` and `stop`.

    `speed` divides all times of scenarios, and `approval_delay`, the seconds from an approval to
    Started. `rate_limit` is requests a second before 429, None for no limit. `incarnation` is that
    of the first, empty document. `on_document` and `on_approval` are called with each as it happens
    (an approval before it is answered: no `status` yet), from any thread, and must return soon.
    Raises `ValueError` for an address that is not allowed or a speed that is not positive.
    """

    def __init__(
        self,
        *,
        vm: SimulatedVm | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        beyond_loopback: bool = False,
        speed: float = 1.0,
        approval_delay: float = 2.0,
        rate_limit: int | None = None,
        incarnation: int = 1,
        api_versions: Sequence[str] = EVENTS_API_VERSIONS,
        clock: Clock | None = None,
        on_document: Callable[[SimulatedDocument], None] = lambda _: None,
        on_approval: Callable[[Post], None] = lambda _: None,
    ) -> None:
        if speed <= 0:
            raise ValueError("speed is a positive number: 60 plays a minute in a second")
        self._address = (_checked(host, beyond_loopback=beyond_loopback), port)
        self._speed = speed
        self._timers = Timers()
        self._faults = FaultQueue()
        vm = vm or SimulatedVm()
        clock = clock or SystemClock()
        super().__init__(
            vm, clock=clock, incarnation=incarnation, versions=api_versions, on_change=on_document
        )
        delay = approval_delay / speed
        self._approvals = Posts(
            self, clock=clock, timers=self._timers, delay=delay, on_approval=on_approval
        )
        self._imds = SimulatedImds(
            self, self._approvals, api_versions, rate_limit=rate_limit, clock=clock
        )
        self._player: Player | None = None
        self._listener: Listener | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen. Raises `OSError` if the port is in use, `RuntimeError` on a second call."""
        if self._listener is not None:
            raise RuntimeError("a simulator starts once; make a new one")
        self._listener = Listener(self._address, self._respond)
        self._listener.accept()

    def stop(self) -> None:
        """End every thread and connection at once. May be called twice."""
        self._stopped = True
        if self._player is not None:
            self._player.stop()
        if self._listener is not None:
            self._listener.close()
        self._timers.cancel()

    @property
    def url(self) -> str:
        """The base URL, for `SEB_IMDS__URL`. Raises `RuntimeError` before `start`."""
        if self._listener is None:
            raise RuntimeError("a simulator has no URL before start()")
        host = self._address[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self._listener.port}"

    # Scenarios

    def play(self, name: str, *, vm_name: str | None = None, hold: float = 0.0) -> None:
        """Play a scenario in a thread, on this VM or the named one; `hold`: how many seconds to
        wait at most until a document was served. Raises `UnknownScenarioError`, or `RuntimeError`
        if one is being played.
        """
        if self._stopped or (self._player is not None and not self._player.finished):
            raise RuntimeError("one scenario at a time: wait() for the one that is playing")
        self._player = Player(
            scenario(name),
            self,
            vm_name=vm_name or self.vm.name,
            speed=self._speed,
            hold=hold,
            clock=self._clock,
        )
        self._player.start()

    @property
    def finished(self) -> bool:
        """Whether the scenario has played out; False if none was played."""
        return self._player is not None and self._player.finished

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the scenario, at most `timeout` seconds; return whether it
        has come.
        """
        return self._player is not None and self._player.wait(timeout)

    # Approvals and faults

    @property
    def approvals(self) -> list[Post]:
        """Every POST so far, oldest first."""
        return self._approvals.approvals

    def fault(self, fault: Fault, *, times: int | None = 1, at: Target = "events") -> None:
        """Misbehave at the next `times` requests; a `RefusedFault` affects the whole port
        at once.
        """
        if not isinstance(fault, RefusedFault):
            self._faults.add(fault, times=times, at=at)
            return
        if self._listener is None:
            raise RuntimeError("start() the simulator before it can refuse")
        self._listener.refuse()
        if fault.seconds is not None:
            self._timers.after(fault.seconds, self._listener.accept)

    def heal(self) -> None:
        """Remove the faults that are still to come, and listen again."""
        self._faults.clear()
        if self._listener is not None:
            self._listener.accept()

    def _respond(
        self, request: SimulatedRequest, connection: socket.socket, stopping: threading.Event
    ) -> bool:
        post = self._approvals.receive(request.body) if request.method == "POST" else None
        exchange = SimulatedExchange(
            connection,
            stopping,
            answer=lambda: self._imds.answer(request, post),
            on_served=self.mark_served,
            post=post,
        )
        if request.endpoint == "events":
            self.count_get()
        fault = self._faults.pop(request.endpoint)
        if fault is None:
            exchange.send(exchange.answer())
        else:
            fault.apply(exchange)
        return exchange.closing


def _checked(host: str, *, beyond_loopback: bool) -> str:
    """Return the IP address to listen on, never the real metadata address. Raises `ValueError`."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address; use 127.0.0.1") from None
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped == _METADATA_ADDRESS:
        raise ValueError("169.254.169.254 belongs to the real metadata service; use 127.0.0.1")
    if not (mapped.is_loopback or beyond_loopback):
        raise ValueError(f"{host} is not a loopback address; use 127.0.0.1")
    return host
