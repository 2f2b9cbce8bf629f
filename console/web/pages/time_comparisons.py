"""Compares measured times with announced ones: the notice, and how long a VM stood still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from console.fleet.event_view import Reporter
from console.fleet.timeline import PastEvent
from console.web.pages import labels
from console.web.pages.formatting import span

_TOLERANCE_SECONDS: Final = 15.0
"""In seconds: Azure publishes an event some seconds before a bridge can see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeComparison:
    """Two lengths of time as a pair of bars; widths are in per cent of the longer one."""

    label: str
    seconds: float
    against: str
    promised: float
    is_worse: bool

    @property
    def width(self) -> int:
        """The width of the measured time."""
        return _percent(self.seconds, self.promised)

    @property
    def promised_width(self) -> int:
        """The width of the promised time."""
        return _percent(self.promised, self.seconds)

    @property
    def sentence(self) -> str:
        """The measured time and the promised one, in words."""
        return f"{self.label} {span(self.seconds)}, {self.against} {span(self.promised)}"


def compared(
    measured: PastEvent | Reporter, event_type: str | None, announced: int | None
) -> list[TimeComparison]:
    """Return the comparisons of one event on one VM; `announced`: the announced seconds of
    interruption, or None.
    """
    found = (_notice(measured, event_type), _pause(measured, announced))
    return [each for each in found if each is not None]


def _notice(measured: PastEvent | Reporter, event_type: str | None) -> TimeComparison | None:
    notice = labels.event_type(event_type).notice
    given = measured.notice_seconds
    if notice is None or given is None or not measured.affects_this_vm:
        return None
    return TimeComparison(
        label="notice",
        seconds=max(0.0, given),
        against="promised",
        promised=notice[0],
        is_worse=given < notice[0] - min(_TOLERANCE_SECONDS, notice[0] / 10),
    )


def _pause(measured: PastEvent | Reporter, announced: int | None) -> TimeComparison | None:
    down = measured.downtime_seconds
    paused = measured.pause_seconds
    label, seconds = ("was down", down) if down else ("paused", paused)
    if not seconds or announced is None or announced < 0:
        return None
    return TimeComparison(
        label=label,
        seconds=seconds,
        against="announced",
        promised=announced,
        is_worse=seconds > announced,
    )


def _percent(one: float, other: float) -> int:
    most = max(one, other)
    return max(1, round(100 * one / most)) if most > 0 else 1
