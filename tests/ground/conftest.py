"""Prints one line for each promise: the ground, whether it was held, and the test's own sentence.

Tests in this directory run the program where its users run it. They are left out of `make test`;
`make ground` runs all of them. A ground that cannot be had is skipped with its reason.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WORDS = {"passed": "held", "failed": "BROKEN", "skipped": "skipped"}
# Windows runs what is in windows/ itself; elsewhere test_windows.py runs that under Wine.
collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else ["windows/test_*.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark what is here, and note which promise each test is about."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker("ground")
        place = item.path.relative_to(HERE).parts
        ground = place[0] if len(place) > 1 else item.path.stem.removeprefix("test_")
        said = (getattr(item, "function", item).__doc__ or item.name).strip()
        case = item.name.partition("[")[2].rstrip("]")
        promise = " ".join(said.partition("\n\n")[0].split()) + (f" [{case}]" if case else "")
        item.user_properties.append(("promise", f"{ground}\t{promise}"))


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """No dots between the lines."""
    return (report.outcome, "", "") if line_of(report) else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The line of a promise, as soon as it is known."""
    if line := line_of(report):
        print(line, file=sys.__stdout__, flush=True)


def line_of(report: Any) -> str:
    """What to print; nothing for a step that says nothing about the promise."""
    promise = dict(getattr(report, "user_properties", ())).get("promise")
    if promise is None or (report.when != "call" and report.passed):
        return ""
    ground, text = promise.split("\t")
    why = (
        f" ({report.longrepr[2]})" if report.skipped and isinstance(report.longrepr, tuple) else ""
    )
    return f"{ground:<24}{WORDS[report.outcome]:<9}{text}{why}"
