"""A running bridge with many sinks, some of which fail, and how long the others wait."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from support.eventually import eventually
from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of
from support.faults.process import Usage, usage
from support.faults.proxy import FaultProxy
from support.process.bridge import SEB, BridgeProcess, fast

from bridge.api import control
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

CHANGES = 5
FAR = timedelta(hours=1)
_TROUBLE = ("sink_down", "sink_stuck", "sink_paused", "sink_bug")
NEAR = timedelta(seconds=110)
"""A notice that has the bridge try failing sinks again within 5 s instead of 60."""


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Median seconds from a document's last byte to its record leaving for each healthy sink."""

    median: Mapping[str, float]

    def ratios(self, before: Self) -> dict[str, float]:
        """How many times longer than before."""
        return {name: each / before.median[name] for name, each in self.median.items()}

    @property
    def slowest(self) -> float:
        """Seconds of the slowest sink."""
        return max(self.median.values())


def unchanged(before: Delays, during: Delays) -> None:
    """Raise `AssertionError` where healthy sinks wait for sick ones, whose limits are seconds.

    Generous, for the machine may be busy: the figures say how it really was.
    """
    for name, delay in during.median.items():
        assert delay < 5 * before.median[name] + 0.5, name


class ManySinks:
    """`seb run` with a file, standard output, and the sinks that the variables name."""

    def __init__(self, home: Path, env: Mapping[str, str], *, prefix: Sequence[str] = ()) -> None:
        self.home = home
        self.file = home / "records.jsonl"
        self.simulator = Simulator()
        self._env = dict(env)
        self._command = (*prefix, *SEB)
        self.bridge: BridgeProcess

    def __enter__(self) -> Self:
        self.simulator.start()
        self.env = {
            **self._env,
            "SEB_SINK__STDOUT__FORMAT": "json",
            "SEB_SINK__FILE__PATH": str(self.file),
            **fast(self.simulator.url, self.home),
        }
        self.bridge = BridgeProcess("run", env=self.env, home=self.home, prefix=self._command)
        self.bridge.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.end()
        self.simulator.stop()

    def be_near(self) -> SimulatedEvent:
        """Announce an event for this VM that is near, and stays."""
        due = datetime.now(UTC) + NEAR
        return self.simulator.announce(SimulatedEvent(event_type="Reboot", not_before=due))

    def change(self, count: int = 4) -> None:
        """So many events that come and go, none of them near, each seen by the bridge."""
        for _ in range(count):
            event = self.simulator.announce(SimulatedEvent(not_before=datetime.now(UTC) + FAR))
            assert self.simulator.wait_until_served(gets=2)
            self.simulator.end_event(event.event_id)
            assert self.simulator.wait_until_served(gets=2)

    def delays(self, proxies: Mapping[str, FaultProxy]) -> Delays:
        """How long records take to healthy sinks, by what passes their proxies."""
        found: dict[str, list[float]] = {name: [] for name in ("stdout", *proxies)}
        for _ in range(CHANGES):
            place = len(self.simulator.history)
            event = self.simulator.announce(SimulatedEvent())
            mark = event.event_id.encode()
            times = {name: self._left(proxy, mark) for name, proxy in proxies.items()}
            times["stdout"] = self._written(mark)
            served = self.simulator.history[place].first_served
            assert served is not None
            for name, time in times.items():
                found[name].append(time - served)
            self.simulator.end_event(event.event_id)
            assert self.simulator.wait_until_served(gets=2)
        return Delays(median={name: statistics.median(each) for name, each in found.items()})

    def _written(self, mark: bytes) -> float:
        self.bridge.wait_until(lambda: any(mark in line.text for line in self.bridge.output))
        return next(line.time for line in self.bridge.output if mark in line.text)

    def _left(self, proxy: FaultProxy, mark: bytes) -> float:
        def moments() -> list[float]:
            return [moment for moment, piece in proxy.passed if mark in piece]

        eventually(lambda: bool(moments()), what="the record at a healthy sink")
        return moments()[0]

    def wait_for_empty_outbox(self, timeout: float = 90.0) -> None:
        """Wait until every record of what IMDS has said so far is at every sink, or dead."""
        assert self.simulator.wait_until_served(gets=2)
        eventually(
            lambda: not any(sink["backlog"] for sink in self.ask("outbox.list")["sinks"]),
            what="an empty outbox",
            timeout=timeout,
        )

    def ask(self, what: str) -> Mapping[str, Any]:
        """What the running bridge answers a command on the same machine, without its process."""
        answer = control.send(self.home / "state", {"ask": what})
        assert answer is not None
        return answer

    def reasons(self, sink: str) -> list[str]:
        """Why a sink was down, stuck or paused, in order."""
        return [
            line["reason"]
            for line in self.bridge.logs()
            if line.get("sink") == sink and line["action"] in _TROUBLE
        ]

    def wait_for_trouble(self, sink: str, part: str = "", timeout: float = 60.0) -> None:
        """Wait until the sink is said to be in trouble, because of this."""
        self.bridge.wait_until(
            lambda: any(part in reason for reason in self.reasons(sink)),
            f"trouble of {sink} {part}",
            timeout,
        )

    def usage(self) -> Usage:
        """What the bridge holds now."""
        return usage(self.bridge.pid)

    def wait_for_usage(self, before: Usage) -> Usage:
        """Wait until the bridge holds no more than before; what it holds then."""
        eventually(
            lambda: self.usage().is_within(before),
            what=f"the end of stuck calls ({before})",
            timeout=60.0,
        )
        return self.usage()

    def judge(
        self,
        case: str,
        received: Mapping[str, Callable[[], Sequence[bytes]]],
        *,
        rounds: int = 1,
        more: str = "",
    ) -> Figures:
        """Wait for everything, stop the bridge, and have the oracle judge what every sink got."""
        self.wait_for_empty_outbox()
        assert self.bridge.stop() == 0
        documents = certain(self.simulator)
        assert len(documents) > 1
        evidence = Evidence(
            case=case,
            rounds=rounds,
            received={
                "stdout": [line.text.rstrip(b"\n") for line in self.bridge.output],
                "file": self.file.read_bytes().splitlines(),
                **{sink: arrived() for sink, arrived in received.items()},
            },
            documents=documents,
            standing=self.simulator.history[-1].json(),
            outbox=outbox_of(self.home, self.env),
        )
        return judge(evidence, more=more)
