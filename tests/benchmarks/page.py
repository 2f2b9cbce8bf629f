"""The page of figures, `docs/benchmarks.md`, from `docs/benchmarks.json`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.benchmarks import (
    approval,
    console,
    drain,
    fleet,
    growth,
    held_polls,
    idle,
    latency,
    start,
    turns,
)
from tests.benchmarks.figures import Figure, bullets, table
from tests.benchmarks.measure import ROOT

BENCHMARKS: Final[Mapping[str, ModuleType]] = {
    "latency": latency,
    "idle": idle,
    "drain": drain,
    "growth": growth,
    "fleet": fleet,
    "start": start,
    "console": console,
    "polls": held_polls,
    "approval": approval,
    "turns": turns,
}
DATA: Final = ROOT / "docs" / "benchmarks.json"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
_VERDICTS: Final = {True: "met", False: "**not met**", None: ""}
_HEAD: Final = """\
# Benchmarks

For the person who asks what it costs. At the end you know what the bridge and the console need,
against what you would use instead.

How fast and how lean the bridge is, and what the smallest program of your own would need in its
place. Both are measured side by side in one run: they take turns, on the same machine, against the
same far ends, and medians are compared. The comparison has no limit; the limits are about what
users feel. Everything runs on loopback, so what a network adds is missing on both sides.

`make bench` measures it all again and writes this page; `python -m tests.benchmarks --only latency`
measures one part.
"""


def load(path: Path = DATA) -> dict[str, Any]:
    """The figures as last measured; none where none were."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(found: Mapping[str, Any]) -> None:
    """Write the figures and the page."""
    DATA.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8", newline="\n")
    PAGE.write_text(render(found), encoding="utf-8", newline="\n")


def render(found: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    return "\n".join(_parts(found))


def _parts(found: Mapping[str, Any]) -> Iterator[str]:
    yield _HEAD
    yield _summary(found)
    for name, module in BENCHMARKS.items():
        if name in found:
            yield from _section(name, module, found[name])


def _summary(found: Mapping[str, Any]) -> str:
    figures = [
        each
        for name, module in BENCHMARKS.items()
        if name in found
        for each in module.figures(found[name]["figures"])
        if each.is_met is not None
    ]
    met = sum(1 for each in figures if each.is_met)
    return f"{met} of {len(figures)} limits are met; where one is not, the page says why.\n"


def _section(name: str, module: ModuleType, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {module.TITLE}\n"
    yield "\n\n".join((module.__doc__ or "").strip().split("\n\n")) + "\n"
    figures = module.figures(found["figures"])
    ours = getattr(module, "OURS", "the bridge")
    yield table(("what", ours, "against", "ratio", "limit", ""), map(_row, figures))
    if unmet := [_reason(each) for each in figures if each.is_met is False]:
        yield "Not met:\n"
        yield bullets(unmet)
    if hasattr(module, "notes"):
        yield from module.notes(found["figures"])
    yield (
        f"Measured on {found['machine']}, version {found['version']}, in {found['seconds']:.0f} s, "
        f"with `python -m tests.benchmarks --only {name}`.\n"
    )


def _row(figure: Figure) -> tuple[str, ...]:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} \u00d7"
    verdict = _VERDICTS[figure.is_met]
    return (figure.what, figure.ours, figure.peer, ratio, str(figure.limit or ""), verdict)


def _reason(figure: Figure) -> str:
    why = figure.why or "the cause is not known yet"
    return f"{figure.what}: {figure.ours}, {figure.limit}. Why: {why}."
