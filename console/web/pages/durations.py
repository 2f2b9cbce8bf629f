"""Measured against promised: the notice, and the time that a VM stood still."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.web.pages import words
from console.web.pages.text import span

_TOLERANCE: Final = 15.0
"""Seconds: Azure publishes an event some seconds before a bridge can see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two lengths of time as a pair of bars; widths are per cent of the longer one."""

    label: str
    seconds: float
    against: str
    promised: float
    is_worse: bool

    @property
    def width(self) -> int:
        """Of what was measured."""
        return _percent(self.seconds, self.promised)

    @property
    def promised_width(self) -> int:
        """Of what was promised."""
        return _percent(self.promised, self.seconds)

    @property
    def sentence(self) -> str:
        """Both in words."""
        return f"{self.label} {span(self.seconds)}, {self.against} {span(self.promised)}"


def durations(item: Mapping[str, Any]) -> list[Pair]:
    """The pairs of one event on one VM: an item of a VM's `history`, or a reporter's."""
    return [each for each in (_notice(item), _pause(item)) if each is not None]


def _notice(item: Mapping[str, Any]) -> Pair | None:
    notice = words.event_type(item.get("eventType")).notice
    given = item.get("noticeSeconds")
    if notice is None or given is None or not item.get("affectsThisVm"):
        return None
    return Pair(
        label="notice",
        seconds=max(0.0, given),
        against="promised",
        promised=notice[0],
        is_worse=given < notice[0] - min(_TOLERANCE, notice[0] / 10),
    )


def _pause(item: Mapping[str, Any]) -> Pair | None:
    announced = item.get("durationInSeconds")
    down, paused = item.get("downtimeSeconds"), item.get("pauseSeconds")
    label, measured = ("was down", down) if down else ("paused", paused)
    if not measured or announced is None or announced < 0:
        return None
    return Pair(
        label=label,
        seconds=measured,
        against="announced",
        promised=announced,
        is_worse=measured > announced,
    )


def _percent(one: float, other: float) -> int:
    most = max(one, other)
    return max(1, round(100 * one / most)) if most > 0 else 1
