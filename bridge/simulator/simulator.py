"""`Simulator`: the stand-in for IMDS that tests, the demo and `seb simulate` use.

It listens beyond loopback only on request, and never on the real metadata address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from bridge.clock import Clock, SystemClock
from bridge.simulator.address import checked_address
from bridge.simulator.answers import Imds, Request, Target
from bridge.simulator.approvals import Approval, Approvals
from bridge.simulator.events import API_VERSIONS
from bridge.simulator.exchange import FaultQueue, LiveExchange
from bridge.simulator.faults import Fault, Refused
from bridge.simulator.link import Link
from bridge.simulator.player import Player
from bridge.simulator.scenarios import scenario
from bridge.simulator.server import Listener
from bridge.simulator.stage import Stage
from bridge.simulator.timeline import SimulatedDocument, Timeline
from bridge.simulator.timers import Timers
from bridge.simulator.vm import SimulatedVm


class Simulator(Stage):
    """An IMDS of your own. Use it as a context manager, or call `start` and `stop`.

    `speed` divides all times of scenarios, and `approval_delay`, the seconds from an approval to
    Started. `rate_limit` is requests a second before 429, None for no limit. `incarnation` is that
    of the first, empty document. `on_document` and `on_approval` are told of each as it happens
    (an approval before it is answered: no `status` yet), from any thread, and must return soon.

    Raises `ValueError` on an address that is not allowed or a speed that is not positive.
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
        api_versions: Sequence[str] = API_VERSIONS,
        clock: Clock | None = None,
        on_document: Callable[[SimulatedDocument], None] = lambda _: None,
        on_approval: Callable[[Approval], None] = lambda _: None,
    ) -> None:
        if speed <= 0:
            raise ValueError("speed is a positive number: 60 plays a minute in a second")
        vm = vm or SimulatedVm()
        self._address = (checked_address(host, beyond_loopback=beyond_loopback), port)
        self._speed = speed
        self._clock = clock or SystemClock()
        self._timers = Timers()
        self._faults = FaultQueue()
        timeline = Timeline(
            clock=self._clock,
            incarnation=incarnation,
            versions=api_versions,
            on_change=on_document,
        )
        super().__init__(vm, timeline)
        self._approvals = Approvals(
            timeline,
            clock=self._clock,
            timers=self._timers,
            delay=approval_delay / speed,
            on_approval=on_approval,
        )
        self._imds = Imds(
            vm=vm,
            timeline=timeline,
            approvals=self._approvals,
            api_versions=api_versions,
            rate_limit=rate_limit,
            clock=self._clock,
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
        """Play a scenario in a thread of its own, on this VM or the one named.

        `hold`: wait so many seconds at most, before each change and at the end, until the document
        that stands was served, so that no poller misses a step at high speed.
        Raises `UnknownScenarioError`; `RuntimeError` while one is playing or after `stop`.
        """
        if self._stopped or (self._player is not None and not self._player.finished):
            raise RuntimeError("one scenario at a time: wait() for the one that is playing")
        self._player = Player(
            scenario(name),
            self._timeline,
            vm_name=vm_name or self.vm.name,
            speed=self._speed,
            hold=hold,
            clock=self._clock,
        )
        self._player.start()

    @property
    def finished(self) -> bool:
        """Whether the scenario has played out; False where none was played."""
        return self._player is not None and self._player.finished

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the scenario, at most `timeout` seconds; whether it has come."""
        return self._player is not None and self._player.wait(timeout)

    # Approvals and faults

    @property
    def approvals(self) -> list[Approval]:
        """Every POST so far, oldest first."""
        return self._approvals.approvals

    def fault(self, fault: Fault, *, times: int | None = 1, at: Target = "events") -> None:
        """Misbehave at the next `times` requests of an endpoint (None: until `heal`).

        Faults queue up. `Refused` concerns the whole port and begins at once; `times` and `at`
        mean nothing to it. Raises `RuntimeError` for it before `start`.
        """
        if not isinstance(fault, Refused):
            self._faults.add(fault, times=times, at=at)
            return
        if self._listener is None:
            raise RuntimeError("start() the simulator before it can refuse")
        self._listener.refuse()
        if fault.seconds is not None:
            self._timers.after(fault.seconds, self._listener.accept)

    def heal(self) -> None:
        """Forget the faults that are still to come, and listen again."""
        self._faults.clear()
        if self._listener is not None:
            self._listener.accept()

    def _respond(self, request: Request, link: Link) -> None:
        post = self._approvals.receive(request.body) if request.method == "POST" else None
        exchange = LiveExchange(
            link,
            answer=lambda: self._imds.answer(request, post),
            mark_served=self._timeline.mark_served,
            post=post,
        )
        if request.endpoint == "events":
            with self._timeline.changed:
                self._gets += 1
                self._timeline.changed.notify_all()
        fault = self._faults.take(request.endpoint)
        if fault is None:
            exchange.send(exchange.answer())
        else:
            fault.apply(exchange)
