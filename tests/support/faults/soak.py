"""A bridge at high speed for long, with one fault after the other, all the while measured."""

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from support.eventually import eventually
from support.faults.process import Usage, usage
from support.faults.proxy import FaultProxy, Spoil
from support.imds.restless_imds import RestlessImds
from support.process.bridge import BridgeProcess, fast
from support.sinks.five_sinks import FiveSinks

from bridge.api import control
from bridge.simulator import faults
from bridge.simulator.simulator import Simulator

RULE: Final = "reboots"
RULES: Final = json.dumps([{"name": RULE, "event_type": ["Reboot"]}])
SAMPLE_SECONDS: Final = 0.5
IMDS: Final[Sequence[Callable[[], faults.Fault]]] = (
    lambda: faults.StatusFault(404),
    lambda: faults.StatusFault(429, retry_after=1),
    lambda: faults.StatusFault(500),
    lambda: faults.Slow(0.4),
    lambda: faults.Silence(0.4),
    lambda: faults.DripBody(0.001),
    lambda: faults.RefusedFault(0.4),
    lambda: faults.ResetFault(after_effect=True),
    faults.EmptyBody,
    faults.Html,
    faults.NoEvents,
    faults.Truncated,
    faults.CutJson,
)
NETWORK: Final = (
    *(Spoil.RESET, Spoil.HALF_CLOSE, Spoil.REFUSED, Spoil.DELAY, Spoil.SLOW, Spoil.DRIP) * 2,
    Spoil.BLACK_HOLE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the bridge used at a moment. `store` is its files but the ballast, in MiB."""

    used: Usage
    store: float


class Soak:
    """Five sinks, three of them behind a network that fails; a context manager."""

    def __init__(self, home: Path, *, seed: int) -> None:
        self.home = home
        self.state = home / "state"
        self.simulator = Simulator(approval_delay=0.2)
        self.sinks = FiveSinks(home)
        self.samples: list[Sample] = []
        self.struck: Counter[str] = Counter()
        """How many faults there were, by kind."""
        self.proxies: dict[str, FaultProxy] = {}
        self.bridge: BridgeProcess
        self._draw = random.Random(seed)
        self._imds = RestlessImds(self.simulator, seed=seed, pause=(0.05, 0.4))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.simulator)
        self._stack.enter_context(self.sinks)
        ports = {
            "webhook": self.sinks.http.port,
            "mqtt": self.sinks.broker.port,
            "eventhub": self.sinks.hub.port,
        }
        for name, port in ports.items():
            self.proxies[name] = self._stack.enter_context(FaultProxy(port))
        self.bridge = self._stack.enter_context(BridgeProcess("run", env=self.env, home=self.home))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, str]:
        """The variables of the bridge."""
        made = {
            **self.sinks.env,
            **fast(self.simulator.url, self.state.parent),
            "SEB_APPROVAL__RULES": RULES,
        }
        for name, proxy in self.proxies.items():
            prefix = f"SEB_SINK__{name.upper()}__"
            for variable in [each for each in made if each.startswith(prefix)]:
                made[variable] = made[variable].replace(str(proxy.target), str(proxy.port))
        return made

    @property
    def received(self) -> dict[str, list[bytes]]:
        """What arrived, by sink. A broker has receipts on a topic of their own."""
        topics = ("/event", "/receipt")
        seen = self.sinks.seen.messages()
        return {
            **self.sinks.received(self.bridge),
            "mqtt": [each.payload for each in seen if each.topic.endswith(topics)],
        }

    def run(self, seconds: float) -> None:
        """So long, with a fault about twice a second."""
        self.bridge.wait_for_log("started")
        halt = threading.Event()
        gremlin = threading.Thread(target=self._spoil, args=(halt,), name="gremlin")
        deadline = time.monotonic() + seconds
        with self._imds:
            gremlin.start()
            try:
                while time.monotonic() < deadline:
                    halt.wait(SAMPLE_SECONDS)
                    self.samples.append(self._sample())
            finally:
                halt.set()
                gremlin.join()
            self._imds.settle()
        self._heal()

    def _spoil(self, halt: threading.Event) -> None:
        while not halt.wait(self._draw.uniform(0.05, 0.6)):
            kind = self._draw.choice(("imds", "imds", "start", "network", "network", "pause"))
            self.struck[kind] += 1
            match kind:
                case "imds":
                    self.simulator.fault(self._draw.choice(IMDS)(), times=self._draw.randint(1, 3))
                case "start":
                    self.simulator.fault(self._draw.choice(IMDS)(), at="start")
                case "network":
                    proxy = self._draw.choice(list(self.proxies.values()))
                    proxy.spoil(self._draw.choice(NETWORK))
                    halt.wait(self._draw.uniform(0.05, 1.0))
                    proxy.heal()
                case _:
                    self.bridge.send(signal.SIGSTOP)
                    halt.wait(self._draw.uniform(0.05, 1.5))
                    self.bridge.send(signal.SIGCONT)
            self._hurry()

    def _hurry(self) -> None:
        """Every sink is tried now: else most of the time would go by in waiting."""
        for name in self.proxies:
            control.send(self.state, {"ask": "outbox.retry", "sink": name})

    def _sample(self) -> Sample:
        files = [path for path in self.state.iterdir() if path.name.startswith("seb.db")]
        size = sum(path.stat().st_size for path in files) / (1 << 20)
        return Sample(used=usage(self.bridge.pid), store=size)

    def _heal(self) -> None:
        self.simulator.heal()
        for proxy in self.proxies.values():
            proxy.heal()
        assert self.simulator.wait_until_served(gets=2)
        eventually(self._delivered, what="the last records", timeout=90)

    def _delivered(self) -> bool:
        self._hurry()
        answer: Mapping[str, Any] | None = control.send(self.state, {"ask": "outbox.list"})
        assert answer is not None
        return all(sink["backlog"] == 0 for sink in answer["sinks"])
