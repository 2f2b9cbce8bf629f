"""Every benchmark with tiny counts: it runs, and its figures are plausible."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks import (
    approval,
    console,
    drain,
    fleet,
    growth,
    held_polls,
    idle,
    latency,
    page,
    start,
    turns,
)
from tests.benchmarks.far_end import Kind


def numbers(found: Any) -> Iterator[float]:
    """Return every number in the figures."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from numbers(each)
    elif isinstance(found, (int, float)):
        yield found


def makes_sense(module: ModuleType, found: Any) -> bool:
    """Check whether every number is one, and every ratio can be compared."""
    figures = module.figures(found)
    ratios = [each.ratio for each in figures if each.ratio is not None]
    good = all(math.isfinite(each) and each >= 0 for each in numbers(found))
    return good and bool(figures) and all(math.isfinite(each) and each > 0 for each in ratios)


FEW: Mapping[Kind, int] = {"mqtt": 150, "webhook": 30, "eventhub": 150}
INTAKE = {
    "records": {"mqtt": 300, "webhook": 64, "eventhub": 300},
    "rounds": 1,
    "where": ("sqlite",),
}
TINY: dict[ModuleType, dict[str, Any]] = {
    latency: {"changes": 2, "warm_up": 1},
    idle: {"windows": 1, "seconds": 2.0, "settle": 1.0},
    drain: {"records": FEW, "rounds": 1},
    growth: {"events": (1, 10), "records": (0, 1500), "sinks": (1, 2), "changes": 3},
    console: {
        "intake": INTAKE,
        "look": {"sizes": (10, 30), "past": 60, "seconds": 1.0, "published": 5},
    },
    approval: {"rounds": 2, "warm_up": 0},
    turns: {"vms": 60, "waiting": 8, "rounds": 2, "answers": 2},
    start: {"rounds": 1},
    held_polls: {"vms": 20, "too_many": 40, "look": 0.5},
}


def name_of(module: ModuleType) -> str:
    """Return its name without the package."""
    return module.__name__.rpartition(".")[2]


SLOW = (console, start, idle, held_polls, latency)
"""What takes ten seconds or more even so: `.ci/run` runs them after the other tests."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "module",
    [
        pytest.param(each, id=name_of(each), marks=[pytest.mark.slow] if each in SLOW else [])
        for each in TINY
    ],
)
def test_it_runs_and_makes_sense(tmp_path: Path, module: ModuleType) -> None:
    """The benchmark runs, its figures are numbers, and its ratios can be compared."""
    assert makes_sense(module, module.measure(tmp_path, **TINY[module]))


def test_fleet(tmp_path: Path) -> None:
    """Each VM of a small fleet connects once, sends each message once, and comes back once."""
    found = fleet.measure(tmp_path, sizes=(4,), away=(0.1,))["sizes"]["4"]
    assert (found["start"]["connections"], found["start"]["messages"]) == (4, 12)
    assert (found["event"]["connections"], found["event"]["messages"]) == (0, 8)
    assert (found["return"]["0.1"]["connections"], found["return"]["0.1"]["messages"]) == (4, 8)
    assert sum(found["return"]["0.1"]["histogram"]) == 4


def test_page_is_current() -> None:
    """The page has the stored figures; `python -m tests.benchmarks --page` writes it."""
    assert page.PAGE.read_text(encoding="utf-8") == page.render(page.load())


@pytest.mark.parametrize("name", page.BENCHMARKS)
def test_every_limit_has_its_reason(name: str) -> None:
    """Every limit has a reason that is printed when a figure misses it."""
    found = page.load()
    if name not in found:
        pytest.skip("it was not measured yet")
    missing = [
        each.what
        for each in page.BENCHMARKS[name].figures(found[name]["figures"])
        if each.limit and not each.why
    ]
    assert missing == []
