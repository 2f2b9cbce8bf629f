"""Each remote sink behind a line that swallows, resets, drips or refuses: no other sink notices."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.faults.many_sinks import Delays, ManySinks, unchanged
from support.faults.oracle import Figures
from support.faults.proxy import FaultProxy, Spoil
from support.faults.sink_ends import Kind, SpoiledEnd, SpoiledEnds

from bridge.simulator.events import SimulatedEvent

Tell = Callable[[Figures], None]
KINDS: tuple[Kind, ...] = ("webhook", "mqtt", "eventhub")
FAULTS = {
    "black_hole": Spoil.BLACK_HOLE,
    "black_hole_tls": Spoil.BLACK_HOLE,
    "reset": Spoil.RESET,
    "half_close": Spoil.HALF_CLOSE,
    "drip": Spoil.DRIP,
    "delay": Spoil.DELAY,
    "refused": Spoil.REFUSED,
}
QUICK = ("reset", "half_close", "refused")
"""Those that a sink learns of at once."""
GRACE = 5.0
"""Seconds that a stop gives the sinks."""


class Lines:
    """A bridge, a healthy sink of each kind, and sick ones, each behind a line of its own."""

    def __init__(self, stack: ExitStack, home: Path) -> None:
        self._stack = stack
        self._home = home
        self.ends = stack.enter_context(SpoiledEnds(home))
        self.healthy = {kind: self.ends.make(kind, f"healthy_{kind}") for kind in KINDS}
        self.sick: dict[str, SpoiledEnd] = {}

    def add(self, kind: Kind, fault: str) -> None:
        """A sink of this kind, to be made sick."""
        name = f"{kind}_{fault}"
        self.sick[name] = self.ends.make(kind, name, tls=fault.endswith("_tls"))

    def start(self) -> ManySinks:
        """Start the bridge; returns once every sink takes records."""
        everybody = self.all_ends()
        env = {name: told for end in everybody for name, told in end.env.items()}
        scene = self._stack.enter_context(ManySinks(self._home, {**self.ends.env, **env}))
        scene.be_near()
        scene.wait_for_empty_outbox()
        return scene

    def all_ends(self) -> list[SpoiledEnd]:
        """Healthy and sick."""
        return [*self.healthy.values(), *self.sick.values()]

    @property
    def others(self) -> Mapping[str, FaultProxy]:
        """What the healthy sinks' records pass."""
        return {kind: end.proxy for kind, end in self.healthy.items()}

    def received(self) -> dict[str, Callable[[], list[bytes]]]:
        """What every far end has, by sink, for the oracle."""
        return {end.name: end.received for end in self.all_ends()}


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    """Nothing runs yet; everything is ended with the test."""
    with ExitStack() as stack:
        made = Lines(stack, tmp_path)
        yield made
        assert [hub.bugs for hub in made.ends.hubs if hub.bugs] == []


def spoil(lines: Lines) -> None:
    """Every sick sink's line begins to fail, each as its name says."""
    for name, end in lines.sick.items():
        end.proxy.spoil(FAULTS[name.partition("_")[2]])


def heal(lines: Lines) -> None:
    """Every line is well again, for new connections."""
    for end in lines.sick.values():
        end.proxy.heal()


def told_of(before: Delays, during: Delays) -> str:
    """How the others did, for the figures."""
    worst = max(during.ratios(before).values())
    return f"others x{worst:.2f} ({during.slowest * 1000:.1f} ms)"


def test_faults_that_show_at_once(lines: Lines, tell: Tell) -> None:
    """One line of each kind is reset, closed by half or refused; the others are as fast as ever."""
    for kind in KINDS:
        for fault in QUICK:
            lines.add(kind, fault)
    scene = lines.start()
    before = scene.delays(lines.others)
    spoil(lines)
    during = scene.delays(lines.others)
    for name, end in lines.sick.items():
        assert end.proxy.wait_for_strike(), name
        scene.wait_for_trouble(name)
    heal(lines)
    unchanged(before, during)
    case = f"lines: {', '.join(QUICK)}"
    tell(scene.judge(case, lines.received(), rounds=len(lines.sick), more=told_of(before, during)))


def test_a_stop_while_all_hang_is_quick(lines: Lines) -> None:
    """Far ends that take connections and never answer cost the others no time, nor the stop."""
    for kind in KINDS:
        lines.add(kind, "black_hole")
    scene = lines.start()
    before = scene.delays(lines.others)
    spoil(lines)
    unchanged(before, scene.delays(lines.others))
    for name, end in lines.sick.items():
        assert end.proxy.wait_for_strike(), name
    begun = time.monotonic()
    assert scene.bridge.stop() == 0
    assert time.monotonic() - begun < GRACE + 1
    assert {*scene.bridge.logs("stopped")[0]["undelivered"].split(",")} == {*lines.sick}


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_of_a_line(lines: Lines, tell: Tell, kind: Kind) -> None:
    """Seven sinks of one kind fail in seven ways at once, until each says so but the merely slow.

    Connections that lost something stay dead when the line heals, so each sink has to find out by
    its own limits.
    """
    for fault in FAULTS:
        lines.add(kind, fault)
    scene = lines.start()
    before = scene.delays(lines.others)
    spoil(lines)
    during = scene.delays(lines.others)
    for name, end in lines.sick.items():
        assert end.proxy.wait_for_strike(), name
        if not name.endswith("_delay"):
            scene.wait_for_trouble(name)
    at_last = scene.delays(lines.others)
    heal(lines)
    for each in (during, at_last):
        unchanged(before, each)
    more = told_of(before, at_last)
    tell(scene.judge(f"lines of {kind}", lines.received(), rounds=len(FAULTS), more=more))
    assert scene.reasons(f"{kind}_delay") == []


@pytest.mark.faults
def test_a_backlog_over_slow_lines(lines: Lines, tell: Tell) -> None:
    """A hundred records get over 16 KiB a second, though no sink could send all of them in time."""
    for kind in KINDS:
        lines.add(kind, "refused")
    scene = lines.start()
    spoil(lines)
    with scene.simulator.change():
        for _ in range(100):
            scene.simulator.announce(SimulatedEvent(resources=tuple(map(str, range(10)))))
    for name in lines.sick:
        scene.wait_for_trouble(name)
    for end in lines.sick.values():
        end.proxy.spoil(Spoil.SLOW)
    scene.wait_for_empty_outbox()
    heal(lines)
    tell(scene.judge("lines that are slow", lines.received(), rounds=len(KINDS)))


def flap(lines: Lines, scene: ManySinks, *, rounds: int, seed: int) -> None:
    """Faults come and go at random on every line, while events come and go."""
    draw = random.Random(seed)
    for _ in range(rounds):
        for end in lines.sick.values():
            end.proxy.spoil(draw.choice([*Spoil, Spoil.NOTHING, Spoil.NOTHING]))
        scene.change(draw.randint(1, 3))
    heal(lines)


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(40, marks=pytest.mark.faults),
        pytest.param(600, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_lines_that_flap(lines: Lines, tell: Tell, rounds: int) -> None:
    """Lines that fail at random, in turn and together, lose nothing and leave nothing open."""
    for kind in KINDS:
        lines.add(kind, "flapping")
        lines.add(kind, "flapping_tls")
    scene = lines.start()
    before = scene.usage()
    flap(lines, scene, rounds=rounds, seed=rounds)
    scene.be_near()
    scene.wait_for_empty_outbox()
    more = str(scene.wait_for_usage(before))
    tell(scene.judge("lines that flap", lines.received(), rounds=rounds, more=more))
