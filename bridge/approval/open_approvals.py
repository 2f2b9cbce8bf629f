"""The approvals that have not ended: it carries out the table in `transitions.py`. It asks IMDS to
start an event, after that decision is on disk; no other module does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bridge.approval.approval_values import receipt
from bridge.approval.policy import BEGUN
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.transitions import (
    ApprovalSituation,
    ApprovalStage,
    ApprovalStep,
    Condition,
    answer_of,
    next_step,
    stage_of,
)
from bridge.approval.trusted_keys import Trust
from bridge.clock import Clock, SteadyTime
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.imds.client import Imds, ImdsError
from bridge.imds.exchange import WithheldError
from bridge.preparation.preparations import Preparations
from bridge.store.approvals import OPEN_STATES, Approval, ApprovalStore, Effect

_LOG: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""The pause after the first request that failed; each further pause is doubled."""
MAX_RETRY_SECONDS: Final = 5.0
ENDS_AT_ONCE: Final = 20
"""How many approvals end before people, polls and commands are served: each end is synced."""


@dataclass(slots=True, kw_only=True)
class OpenApproval:
    """An approval that has not ended. Times are monotonic seconds."""

    approval: Approval
    """The approval as it is on disk."""
    stage: ApprovalStage
    first_seen: datetime | None
    """When its event appeared."""
    due: float
    """When the next request may be sent."""
    time: SteadyTime
    """Decides when its command has expired: a clock that was set back does not prolong it."""
    pause: float = 0.0
    was_refused: bool = False
    """Whether IMDS refused a request after one that may have worked."""
    condition: Condition | None = None
    """The condition of its newest step."""

    @property
    def key(self) -> str:
        """The key of its event."""
        return (self.approval.event_id or "").casefold()

    def only_waits(self, tracked: TrackedEvent | None) -> bool:
        """Check whether IMDS has taken its request, and the event has neither begun nor ended. Only
        a beginning or an end changes such an approval. An event that changes all the time may have
        thousands of them.
        """
        return (
            self.stage is ApprovalStage.POSTED
            and self.approval.expires is None
            and tracked is not None
            and tracked.pending
            and tracked.first_seen == self.first_seen
            and tracked.event.event_status not in BEGUN
        )

    def is_under_way(self, tracked: TrackedEvent) -> bool:
        """Check whether the rules leave the event to it: it is about the event as it is now, and
        may still send a request or has had one taken. A request that IMDS took for an earlier state
        may have started nothing, even if the event has come back to that state.
        """
        approval = self.approval
        # A command whose keys cannot be read may wait until it has expired.
        is_stuck = self.condition is Condition.WAITING and not approval.by_rule
        return (
            self.condition not in (Condition.WITHDRAWN, Condition.EXPIRED)
            and not is_stuck
            and self.key == tracked.event.key
            and (approval.revision is None or approval.revision >= tracked.state_since)
            and approval.fingerprint == tracked.fingerprint
        )


class OpenApprovals:
    """Brings each approval from `accepted` to its end. Used by one thread at a time."""

    def __init__(
        self,
        current: CurrentState,
        store: ApprovalStore,
        imds: Imds,
        clock: Clock,
        *,
        rules: RuleDecisions,
        trust: Trust,
        preparations: Preparations | None,
    ) -> None:
        self._current = current
        self._store = store
        self._imds = imds
        self._clock = clock
        self._rules = rules
        self._trust = trust
        self._preparations = preparations
        self._open: dict[str, OpenApproval] = {}
        for approval in store.unfinished():
            self._update_open(approval, least=current.gaps.polled_at)

    def has_one_under_way(self, tracked: TrackedEvent) -> bool:
        """Check whether the rules leave the event, as it is now, to an approval that is open."""
        return any(each.is_under_way(tracked) for each in self._open.values())

    def advance(self) -> None:
        """Advance every approval as far as what is known allows. Sends no request. Raises
        `StoreError`.
        """
        ended = 0
        for each in list(self._open.values()):
            ended += self._advance(each).end is not None
            if ended == ENDS_AT_ONCE:
                break  # `post_next` goes on with them

    def save(self, approval: Approval) -> Approval:
        """Commit an approval in its new state with its receipt. Raises `StoreError`."""
        now = self._clock.now()
        self._store.save(approval, now, receipt(approval, self._current.observer, now))
        _LOG.info(
            "an approval has a new state",
            extra={
                "action": f"approval.{approval.state}",
                "event": approval.event_id,
                "jti": approval.jti,
                "actor": approval.actor,
                "reason": approval.reason,
                "why": approval.person_reason,
            },
        )
        self._update_open(approval)
        return approval

    def post_next(self) -> bool:
        """Send the request that has been due for the longest time; return whether there was one, or
        many approvals have ended.
        """
        ended = 0
        for each in sorted(self._open.values(), key=lambda each: each.due):
            step = self._advance(each)
            ended += step.end is not None
            if ended == ENDS_AT_ONCE or (step.post and self._post(each)):
                return True
        return False

    def _advance(self, opened: OpenApproval) -> ApprovalStep:
        """Take an approval as far as what is known allows; return the step, which may ask for a
        request.
        """
        if opened.approval.state != opened.stage.state:
            # IMDS took the request, and that could not be written.
            self.save(replace(opened.approval, state=opened.stage.state))
        if opened.only_waits(self._current.events.get(opened.key)):
            return ApprovalStep()
        seen = self._observe(opened)
        opened.condition = seen.condition
        if opened.condition is Condition.UNPREPARED:
            self._ask_to_prepare(seen)
        step = next_step(opened.stage, opened.condition)
        self._end(opened, step, seen.objection)
        return step

    def _ask_to_prepare(self, seen: ApprovalSituation) -> None:
        """Ask the sink to prepare for the event, unless it was asked already."""
        if self._preparations is not None and seen.tracked is not None:
            by = "command" if seen.approval.act == "prepare" else "approval"
            self._preparations.ask(seen.tracked, f"{by}:{seen.approval.jti}")

    def _post(self, opened: OpenApproval) -> bool:
        """Ask IMDS to start the event; return whether a request was sent. Raises `StoreError`."""
        self._save_effect(opened, "maybe")
        if self._preparations is not None:
            # The event may have gone on without this VM, and name it again since.
            self._preparations.follow()
        seen = self._observe(opened)  # writing may have taken long
        if not next_step(opened.stage, seen.condition).post or not self._still_holds(opened, seen):
            self._save_effect(opened, opened.stage.effect)
            return False
        opened.due = self._clock.monotonic() + MAX_RETRY_SECONDS  # whatever happens to this one
        error = None
        try:
            event_id = opened.approval.event_id or ""
            self._imds.start(event_id, may_send=lambda: self._is_allowed_now(opened, seen))
        except WithheldError:
            self._save_effect(opened, opened.stage.effect)
            return False
        except ImdsError as raised:
            error = raised
        self._note_answer(opened, error)
        return True

    def _note_answer(self, opened: OpenApproval, error: ImdsError | None) -> None:
        answer = answer_of(error, refused_before=opened.was_refused)
        step = next_step(opened.stage, answer)
        opened.was_refused = opened.was_refused or answer is Condition.REFUSED
        opened.stage = step.stage or opened.stage
        opened.pause = min(2 * opened.pause or RETRY_SECONDS, MAX_RETRY_SECONDS)
        longest = max(opened.pause, (error and error.retry_after) or 0.0)
        opened.due = self._clock.monotonic() + longest
        if error is not None:
            _LOG.warning(
                "IMDS did not take the approval",
                extra={
                    "action": "approval_retry",
                    "jti": opened.approval.jti,
                    "reason": str(error),
                },
            )
        if opened.stage is ApprovalStage.POSTED:
            self.save(replace(opened.approval, state="posted"))
        elif step.end is None:
            self._save_effect(opened, opened.stage.effect)
        self._end(opened, step, None)

    def _observe(self, opened: OpenApproval) -> ApprovalSituation:
        tracked = self._current.events.get(opened.key)
        asked = (
            tracked
            if tracked and tracked.pending and opened.stage is not ApprovalStage.POSTED
            else None
        )
        return ApprovalSituation(
            approval=opened.approval,
            tracked=tracked,
            first_seen=opened.first_seen,
            basis=self._basis(opened.approval, asked) if asked else None,
            preparation=self._current.preparation(asked) if asked else None,
            is_current=self._current.is_current(),
            is_paused=self._clock.monotonic() < opened.due,
            now=opened.time.now(),
        )

    def _basis(self, approval: Approval, tracked: TrackedEvent) -> Condition | None:
        """Return WITHDRAWN or WAITING if the rule that decided, or the key that signed, requires
        it.
        """
        if approval.act == "prepare":
            return None
        if not approval.by_rule:
            return self._key_basis(approval)
        answer = self._rules.answer(approval, tracked)
        return {"approve": None, "wait": Condition.WAITING, "refuse": Condition.WITHDRAWN}[answer]

    def _key_basis(self, approval: Approval) -> Condition | None:
        """Return what `_basis` returns, for an approval that a key has signed."""
        if approval.issuer is None or (approval.key and self._trust.has(approval.key)):
            return None
        return Condition.WAITING if approval.key and self._trust.trouble else Condition.WITHDRAWN

    def _still_holds(self, opened: OpenApproval, seen: ApprovalSituation) -> bool:
        """Check whether the POST is still allowed after the newest observations. Raises
        `StoreError`.
        """
        tracked = seen.tracked
        if tracked is None or self._store.newest_record(tracked.event.key) != tracked.record_id:
            return False  # a poll has committed a change that is not in the state yet
        return self._is_allowed_now(opened, seen)

    def _is_allowed_now(self, opened: OpenApproval, seen: ApprovalSituation) -> bool:
        """Check again, without blocking, whether the POST may be sent: the wait for the store and
        for a connection may have been long.
        """
        tracked = seen.tracked
        latest = replace(
            seen,
            basis=self._key_basis(opened.approval),
            preparation=None if tracked is None else self._current.preparation(tracked),
            is_current=self._current.is_current(),
            now=opened.time.now(),
        )
        return (
            self._current.events.get(opened.key) == tracked
            and next_step(opened.stage, latest.condition).post
        )

    def _end(self, opened: OpenApproval, step: ApprovalStep, found: str | None) -> None:
        if step.end is not None:
            reason = step.reason or (found if step.end == "failed" else None)
            self.save(replace(opened.approval, state=step.end, reason=reason))

    def _save_effect(self, opened: OpenApproval, effect: Effect) -> None:
        if opened.approval.effect != effect:
            approval = replace(opened.approval, effect=effect)
            self._store.save(approval, self._clock.now())
            opened.approval = approval

    def _update_open(self, approval: Approval, *, least: datetime | None = None) -> None:
        """Follow an approval until its end; a ping has nothing to follow. `least`: the last good
        poll of the run before.
        """
        if approval.state not in OPEN_STATES or approval.event_id is None:
            self._open.pop(approval.cause, None)
        elif approval.cause in self._open:
            self._open[approval.cause].approval = approval
        else:
            tracked = self._current.events.get(approval.event_id.casefold())
            self._open[approval.cause] = OpenApproval(
                approval=approval,
                stage=stage_of(approval),
                first_seen=_first_seen(tracked, approval),
                due=self._clock.monotonic(),
                time=SteadyTime(
                    self._clock,
                    since=self._store.accepted_at(approval.cause),
                    uptime_then=approval.uptime,
                    least=least,
                ),
            )


def _first_seen(tracked: TrackedEvent | None, approval: Approval) -> datetime | None:
    """Return when the event appeared for which an approval was accepted; None if that is over, even
    if the event has returned since.
    """
    if tracked is None:
        return None
    has_returned = approval.revision is not None and approval.revision < tracked.appeared
    return None if has_returned else tracked.first_seen
