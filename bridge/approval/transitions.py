"""The state machine of an approval, as one table; values in, values out.

An approval begins as `accepted`: a command was verified, a rule has decided, or a person has asked.
At each step, the stage of the approval and the first condition that holds, in the order of
`Condition`, name the next step. `OpenApprovals` carries it out. docs/reference.md shows the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, Literal

from bridge.approval.policy import BEGUN, objection
from bridge.events.tracked import TrackedEvent
from bridge.imds.exchange import ImdsError
from bridge.store.approvals import Approval, Effect, State

OBJECTIONS: Final = ("event_changed", "not_approvable", "not_allowed")
"""The reasons of CHANGED, as `policy.objection` gives them."""


class ApprovalStage(Enum):
    """The stage of an open approval: its state, and what its requests to IMDS may have caused."""

    UNTRIED = ("accepted", "none", "accepted, no request sent")
    UNREACHED = ("accepted", "in vain", "accepted, no request reached IMDS")
    ERROR = ("accepted", "error", "accepted, IMDS answered with an error")
    UNSURE = ("accepted", "maybe", "accepted, an answer was lost")
    POSTED = ("posted", "maybe", "posted")
    PREPARING = ("accepted", "none", "accepted, to prepare only")

    def __init__(self, state: State, effect: Effect, meaning: str) -> None:
        self.state: State = state
        self.effect: Effect = effect
        self.meaning = meaning


class Condition(Enum):
    """What decides about the next step: something that is true now, or IMDS's answer."""

    BEGUN = "the event has begun"
    WITHOUT_THIS_VM = (
        "the event has stopped naming this VM, and goes on without it (`SEB_SCOPE=self`)"
    )
    OVER = "the event is over, or it ended and returned"
    CHANGED = "the event is not in the approved state, or cannot be approved"
    WITHDRAWN = "its rule does not approve it any more, or its key is not trusted any more"
    EXPIRED = "its command has expired"
    NOT_PREPARED = "the program that prepares has given up"
    WAITING = "its rule waits, or the trusted keys cannot be read"
    UNPREPARED = "the program that prepares has not ended with 0 yet"
    NOT_SHOWN = "the last poll failed, or is too old, or does not show the event"
    PAUSED = "the pause after the last request is not over"
    READY = "none of these"

    OK = "IMDS answers 200"
    REFUSED = "IMDS answers 400 or 405"
    REFUSED_AGAIN = "IMDS answers 400 or 405 for the second time"
    SERVER_ERROR = "IMDS answers 5xx"
    NOT_REACHED = "there is no connection, or IMDS answers another 4xx"
    LOST = "anything else: the answer is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalStep:
    """The next step of an approval. A field that is not given changes nothing."""

    post: bool = False
    """Ask IMDS to start the event; its answer is the next condition."""
    stage: ApprovalStage | None = None
    """The new stage."""
    end: Literal["confirmed", "failed"] | None = None
    reason: str | None = None
    """The reason of an end as `failed`; None if the condition has its own."""

    def __str__(self) -> str:
        if self.post:
            return "**POST**"
        if self.stage is not None:
            return f"→ {self.stage.meaning}"
        if self.end is None:
            return ""
        if self.end == "confirmed":
            return "`confirmed`"
        return f"`failed`: `{self.reason or '`, `'.join(OBJECTIONS)}`"


def _failed(reason: str | None) -> ApprovalStep:
    return ApprovalStep(end="failed", reason=reason)


_STAY: Final = ApprovalStep()
_POST: Final = ApprovalStep(post=True)
_CONFIRM: Final = ApprovalStep(end="confirmed")
_POSTED: Final = ApprovalStep(stage=ApprovalStage.POSTED)
_UNREACHED: Final = ApprovalStep(stage=ApprovalStage.UNREACHED)
_ERROR: Final = ApprovalStep(stage=ApprovalStage.ERROR)
_UNSURE: Final = ApprovalStep(stage=ApprovalStage.UNSURE)
_AS_FOUND: Final = _failed(None)
_STARTED: Final = _failed("already_started")
_CHANGED: Final = _failed("event_changed")
_UNKNOWN: Final = _failed("unknown_event")
_NO_IMDS: Final = _failed("imds_unreachable")
_REFUSED: Final = _failed("imds_refused")
_DENIED: Final = _failed("not_allowed")
_EXPIRED: Final = _failed("expired")
_NO_PREP: Final = _failed("not_prepared")

# Conditions down, in the order in which they count; stages across, in the order of `ApprovalStage`.
# A request whose answer was lost may have started the event: then the event itself shows
# whether it did, and no reason of ours can. An error of a server may have had its effect too, but
# that an event is over does not show it. If the event changes after such a request, the approval
# ends, and its reason says that Azure may have received it.
# fmt: off
_STEPS: Final[Mapping[Condition, tuple[ApprovalStep, ...]]] = {
    #                           UNTRIED     UNREACHED  ERROR     UNSURE    POSTED    PREPARING
    Condition.BEGUN:           (_STARTED,   _NO_IMDS,  _CONFIRM, _CONFIRM, _CONFIRM, _STARTED),
    Condition.WITHOUT_THIS_VM: (_CHANGED,   _CHANGED,  _NO_IMDS, _NO_IMDS, _CHANGED, _CHANGED),
    Condition.OVER:            (_UNKNOWN,   _NO_IMDS,  _REFUSED, _CONFIRM, _CONFIRM, _UNKNOWN),
    Condition.CHANGED:         (_AS_FOUND,  _AS_FOUND, _NO_IMDS, _NO_IMDS, _STAY,    _AS_FOUND),
    Condition.WITHDRAWN:       (_DENIED,    _DENIED,   _DENIED,  _STAY,    _STAY,    _STAY),
    Condition.EXPIRED:         (_EXPIRED,   _EXPIRED,  _STAY,    _STAY,    _STAY,    _STAY),
    Condition.NOT_PREPARED:    (_NO_PREP,   _NO_PREP,  _STAY,    _STAY,    _STAY,    _NO_PREP),
    Condition.WAITING:         (_STAY,      _STAY,     _STAY,    _STAY,    _STAY,    _STAY),
    Condition.UNPREPARED:      (_STAY,      _STAY,     _STAY,    _STAY,    _STAY,    _STAY),
    Condition.NOT_SHOWN:       (_STAY,      _STAY,     _STAY,    _STAY,    _STAY,    _STAY),
    Condition.PAUSED:          (_STAY,      _STAY,     _STAY,    _STAY,    _STAY,    _STAY),
    Condition.READY:           (_POST,      _POST,     _POST,    _POST,    _STAY,    _CONFIRM),

    Condition.OK:              (_POSTED,    _POSTED,   _POSTED,  _POSTED,  _STAY,    _STAY),
    Condition.REFUSED:         (_REFUSED,   _REFUSED,  _STAY,    _STAY,    _STAY,    _STAY),
    Condition.REFUSED_AGAIN:   (_REFUSED,   _REFUSED,  _REFUSED, _REFUSED, _STAY,    _STAY),
    Condition.SERVER_ERROR:    (_ERROR,     _ERROR,    _STAY,    _STAY,    _STAY,    _STAY),
    Condition.NOT_REACHED:     (_UNREACHED, _STAY,     _STAY,    _STAY,    _STAY,    _STAY),
    Condition.LOST:            (_UNSURE,    _UNSURE,   _UNSURE,  _STAY,    _STAY,    _STAY),
}
# fmt: on
TABLE: Final[Mapping[ApprovalStage, Mapping[Condition, ApprovalStep]]] = {
    stage: {condition: steps[column] for condition, steps in _STEPS.items()}
    for column, stage in enumerate(ApprovalStage)
}

# Azure: 400 and 405 do not heal; 404, 410, 429 and 5xx do, and a peer met a single 401.
_REFUSALS: Final = frozenset({"http_400", "http_405"})
_NO_CONNECTION: Final = frozenset({"refused", "unreachable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSituation:
    """Everything that is known about an open approval at one moment."""

    approval: Approval
    tracked: TrackedEvent | None
    """Its event, as the newest document of this run has it; None if it is not known any more."""
    first_seen: datetime | None
    """When the event that was approved appeared: what returned later is another one."""
    basis: Condition | None
    """WITHDRAWN or WAITING if its rule or its key requires it."""
    preparation: str | None = None
    """The state of this VM's preparation for the event; None if it has nothing to prepare."""
    is_current: bool
    """Whether the last poll succeeded and the next one is not overdue."""
    is_paused: bool
    now: datetime

    @property
    def objection(self) -> str | None:
        """Why the event cannot be approved as it is now; None if it can."""
        return objection(self.tracked, self.approval.fingerprint)

    @property
    def condition(self) -> Condition:
        """The first condition that holds."""
        holding = set(self._conditions())
        return next(each for each in Condition if each in holding)

    def _conditions(self) -> Iterator[Condition]:
        tracked = self.tracked
        expires = self.approval.expires
        yield from self._conditions_of_event()
        if self.basis is not None:
            yield self.basis
        # A preparation that was asked for goes on to its end: nothing is posted for it.
        is_posted = self.approval.act == "approve"
        if is_posted and expires is not None and self.now.timestamp() >= expires:
            yield Condition.EXPIRED
        # Without a sink that prepares, a wish to prepare cannot be fulfilled.
        if self.preparation == "failed" or (self.preparation is None and not is_posted):
            yield Condition.NOT_PREPARED
        if self.preparation not in (None, "prepared"):
            yield Condition.UNPREPARED
        if not self.is_current or tracked is None or not tracked.shown:
            yield Condition.NOT_SHOWN
        if self.is_paused:
            yield Condition.PAUSED
        yield Condition.READY

    def _conditions_of_event(self) -> Iterator[Condition]:
        tracked = self.tracked
        same = tracked is not None and tracked.first_seen == self.first_seen
        event = tracked if same else None
        if event is not None and event.event.event_status in BEGUN:
            yield Condition.BEGUN
        if event is not None and event.goes_on_without_this_vm:
            yield Condition.WITHOUT_THIS_VM
        if event is None or not event.pending:
            yield Condition.OVER
        if self.objection is not None:
            yield Condition.CHANGED


def stage_of(approval: Approval) -> ApprovalStage:
    """Return the stage of an open approval, as the store has it."""
    if approval.act == "prepare":
        return ApprovalStage.PREPARING
    if approval.state == ApprovalStage.POSTED.state:
        return ApprovalStage.POSTED
    tried = (
        ApprovalStage.UNTRIED,
        ApprovalStage.UNREACHED,
        ApprovalStage.ERROR,
        ApprovalStage.UNSURE,
    )
    return next((each for each in tried if each.effect == approval.effect), ApprovalStage.UNSURE)


def answer_of(error: ImdsError | None, *, refused_before: bool) -> Condition:
    """Return the condition for IMDS's answer to a request; an error of None is a 200."""
    if error is None:
        return Condition.OK
    if error.reason in _REFUSALS:
        return Condition.REFUSED_AGAIN if refused_before else Condition.REFUSED
    if error.reason.startswith("http_5"):
        return Condition.SERVER_ERROR
    if error.reason in _NO_CONNECTION or error.reason.startswith("http_4"):
        return Condition.NOT_REACHED
    return Condition.LOST


def next_step(stage: ApprovalStage, condition: Condition) -> ApprovalStep:
    """Return the next step of an approval in this stage."""
    return TABLE[stage][condition]


def printed() -> list[Sequence[str]]:
    """Return the table as rows of text: the condition, then the step of each stage."""
    return [(condition.value, *map(str, steps)) for condition, steps in _STEPS.items()]
