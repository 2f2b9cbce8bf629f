"""The approvals of an event so far: a line of steps per command, from the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from console.fleet.outcomes import FINAL, ending
from console.fleet.timeline import TimelineCommand, TimelineEntry, TimelineReceipt
from console.web.pages import labels

STEPS: Final = ("sent", "accepted", "posted", "confirmed")
_LABELS: Final[Mapping[str, str]] = {
    "sent": "sent",
    "accepted": "accepted by the VM",
    "posted": "given to Azure",
    "confirmed": "confirmed",
    "failed": "failed",
    "rejected": "rejected",
    "unanswered": "no answer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStep:
    """One step: `done`, `now` (the latest one), `bad` (the attempt ended there) or `open`."""

    label: str
    mark: str
    at: float | None = None


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What happened to one command, or to an approval that was not given in this console."""

    jti: str
    vm_id: str
    vm: str
    by: str | None
    is_here: bool
    """Whether this console sent it."""
    at: dict[str, float | None] = field(default_factory=dict)
    """The time of each state; the last one is the current state."""
    reason: str | None = None
    has_answer: bool = False

    @property
    def state(self) -> str:
        """The current state of the attempt."""
        return next(reversed(self.at), "made")

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINAL

    @property
    def who(self) -> str | None:
        """Who approved, and what they are: a person, a rule or a group."""
        return None if self.by is None else labels.actor_label(self.by, here=self.is_here)

    @property
    def ending(self) -> tuple[str, str] | None:
        """Why the attempt ended without success, and what to do."""
        return ending(self.state, self.reason)

    @property
    def steps(self) -> Sequence[AttemptStep]:
        """The attempt's steps in order, with those that are still to come."""
        names = STEPS if self.is_here else STEPS[1:]
        came = [name for name in names if name in self.at]
        if self.is_over and self.state != "confirmed":
            done = [
                AttemptStep(label=_LABELS[name], mark="done", at=self.at[name]) for name in came
            ]
            label = _LABELS.get(self.state, self.state)
            return [*done, AttemptStep(label=label, mark="bad", at=self.at.get(self.state))]
        reached = names.index(self.state) if self.state in names else -1
        return [
            AttemptStep(label=_LABELS[name], mark=_mark(index, reached, name), at=self.at.get(name))
            for index, name in enumerate(names)
        ]


def attempts(timeline: Iterable[TimelineEntry], name_of: Callable[[str], str]) -> list[Attempt]:
    """Return the attempts in an event's timeline, the newest last."""
    items = [
        item
        for item in timeline
        if isinstance(item, (TimelineCommand, TimelineReceipt)) and item.act != "prepare"
    ]
    ours = {item.jti for item in items if item.kind == "command"}
    found: dict[str, Attempt] = {}
    for item in items:
        by, reason = (item.by, item.reason) if item.kind == "receipt" else (None, None)
        attempt = found.get(item.jti)
        if attempt is None:
            attempt = found[item.jti] = Attempt(
                jti=item.jti,
                vm_id=item.vm_id,
                vm=name_of(item.vm_id),
                by=by,
                is_here=item.jti in ours,
            )
        state = item.state
        if item.kind == "receipt":
            attempt.at.pop("unanswered", None)  # the answer came late
            attempt.has_answer = True
        if state in attempt.at or state == "made" or (attempt.is_over and state in STEPS):
            continue
        if state == "unanswered" and attempt.has_answer:
            continue
        if state == "rejected" and reason == "replayed" and attempt.at:
            continue  # a second copy of the same command; the first one counts
        attempt.at[state] = item.at
        attempt.by = attempt.by or by
        attempt.reason = reason or attempt.reason
    return list(found.values())


def _mark(index: int, reached: int, name: str) -> str:
    if index > reached:
        return "open"
    return "now" if index == reached and name != "confirmed" else "done"
