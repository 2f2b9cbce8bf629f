"""Every benchmark with tiny counts: that it runs, and that its figures make sense. How fast
anything is, only a quiet machine can say.
"""

from __future__ import annotations

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
)
from tests.benchmarks.farend import Kind


def numbers(found: Any) -> Iterator[float]:
    """Every number in the figures."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from numbers(each)
    elif isinstance(found, (int, float)):
        yield found


def makes_sense(module: ModuleType, found: Any) -> bool:
    """Whether every number is one, and every ratio can be compared."""
    figures = module.figures(found)
    ratios = [each.ratio for each in figures if each.ratio is not None]
    good = all(math.isfinite(each) and each >= 0 for each in numbers(found))
    return good and bool(figures) and all(math.isfinite(each) and each > 0 for each in ratios)


def test_latency(tmp_path: Path) -> None:
    """A change reaches the far end of each kind, from the bridge and from the small loop."""
    found = latency.measure(tmp_path, changes=2, warm_up=1)
    assert list(found) == ["mqtt", "webhook", "eventhub"]
    assert makes_sense(latency, found)


def test_idle(tmp_path: Path) -> None:
    """An idle bridge uses some CPU, and more memory than its libraries alone."""
    found = idle.measure(tmp_path, windows=1, seconds=2.0, settle=1.0)
    assert makes_sense(idle, found)
    assert found["mqtt"]["mib"] > found["imports_mqtt"]["mib"] > 0


def test_drain(tmp_path: Path) -> None:
    """A backlog of each kind arrives whole, from the bridge and from the raw library."""
    few: Mapping[Kind, int] = {"mqtt": 150, "webhook": 30, "eventhub": 150}
    found = drain.measure(tmp_path, records=few, rounds=1)
    assert few == {kind: each["records"] for kind, each in found.items()}
    assert makes_sense(drain, found)


def test_growth(tmp_path: Path) -> None:
    """Documents, stores and sinks of two sizes are measured."""
    found = growth.measure(tmp_path, events=(1, 10), records=(0, 1500), sinks=(1, 2), changes=3)
    assert makes_sense(growth, found)
    assert {"waiting", "delivered"} == set(found["store"])


def test_fleet(tmp_path: Path) -> None:
    """Each VM of a small fleet connects once, sends each message once, and comes back once."""
    found = fleet.measure(tmp_path, sizes=(4,), away=(0.1,))["sizes"]["4"]
    assert (found["start"]["connections"], found["start"]["messages"]) == (4, 12)
    assert (found["event"]["connections"], found["event"]["messages"]) == (0, 8)
    assert (found["return"]["0.1"]["connections"], found["return"]["0.1"]["messages"]) == (4, 8)
    assert sum(found["return"]["0.1"]["histogram"]) == 4


@pytest.mark.timeout(600)
def test_console(tmp_path: Path) -> None:
    """Every source is measured, and a small fleet is looked at."""
    few: Mapping[Kind, int] = {"mqtt": 300, "webhook": 64, "eventhub": 300}
    found = console.measure(
        tmp_path,
        intake={"records": few, "rounds": 1, "where": ("sqlite",)},
        look={"sizes": (10, 30), "past": 60, "seconds": 1.0, "published": 5},
    )
    assert makes_sense(console, found)
    assert all("sqlite" in each for each in found["intake"].values())
    assert "1,000,000 VMs" in "".join(console.notes(found))


def test_approval(tmp_path: Path) -> None:
    """An approval takes some time to reach Azure, through a real console and a real bridge."""
    found = approval.measure(tmp_path, rounds=2, warm_up=0)
    assert makes_sense(approval, found)


def test_start(tmp_path: Path) -> None:
    """A start and each command take some time, and no command less than Python itself."""
    found = start.measure(tmp_path, rounds=1)
    assert makes_sense(start, found)
    assert found["command_s"]["version"] > found["command_s"]["python"]


def test_held_polls(tmp_path: Path) -> None:
    """Each VM's poll is held, and held again after a break."""
    found = held_polls.measure(tmp_path, vms=20, too_many=40, look=0.5)
    assert makes_sense(held_polls, found)
    assert (found["held_of_too_many"], found["crowded_serves"]) == (40, True)


def test_page_is_current() -> None:
    """The page says what the figures say; `python -m tests.benchmarks --page` writes it anew."""
    assert page.PAGE.read_text(encoding="utf-8") == page.render(page.load())


@pytest.mark.parametrize("name", page.BENCHMARKS)
def test_every_limit_has_its_reason(name: str) -> None:
    """A figure that misses its limit, on whatever machine, can say why."""
    found = page.load()
    missing = [
        each.what
        for each in page.BENCHMARKS[name].figures(found[name]["figures"])
        if each.limit and not each.why
    ]
    assert missing == []
