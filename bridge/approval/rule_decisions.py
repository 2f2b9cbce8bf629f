"""The decisions of the owner's rules about pending events, each made once, even across restarts."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from bridge.approval.approval_values import approval_of
from bridge.approval.policy import Answer, RuleDecision, decide
from bridge.clock import Clock, uptime
from bridge.config.approval import Rule
from bridge.events.tracked import TrackedEvent
from bridge.store.approvals import Approval, ApprovalStore

_LOG: Final = logging.getLogger(__name__)

Acknowledged = Callable[[str, str], bool]
"""Checks whether a sink, by name, has acknowledged the latest record of an event, by key."""


@dataclass(slots=True, kw_only=True)
class _Pending:
    """What this run keeps about a pending event, as long as it is the same event."""

    first_seen: datetime
    since: float
    """Monotonic time at which this run first saw it."""
    logged: str | None = None
    decided: str | None = None
    """The cause of the newest state that the store has already."""


class RuleDecisions:
    """Asks the rules about pending events. Used by one thread at a time."""

    def __init__(
        self,
        rules: Sequence[Rule],
        store: ApprovalStore,
        clock: Clock,
        *,
        vm_name: Callable[[], str],
        acknowledged: Acknowledged,
    ) -> None:
        self._rules = rules
        self._store = store
        self._clock = clock
        self._vm_name = vm_name
        self._acknowledged = acknowledged
        self._pending: dict[str, _Pending] = {}

    def forget_all_but(self, pending: Collection[str]) -> None:
        """Forget all events except these, by key."""
        for key in self._pending.keys() - set(pending):
            del self._pending[key]

    def approval(self, tracked: TrackedEvent) -> Approval | None:
        """Return the approval, accepted or rejected, that a rule newly decides; None if no rule
        does, or the store has it already. Raises `StoreError`.
        """
        decision = self._decide(tracked)
        if decision is None:
            return None
        kept = self._kept(tracked)
        _log_once(tracked, decision, kept)
        if decision.answer == "wait":
            return None
        state = f"{tracked.event.key}\n{tracked.revision}\n{tracked.fingerprint}"
        cause = f"rule\n{decision.rule.name}\n{state}"
        if decision.answer == "refuse":
            cause += "\nrefused"  # the owner may have the rule allow it in the next run
        unused = None if cause == kept.decided else self._unused(cause)
        if unused is None:
            kept.decided = cause
            return None
        actor = _actor(decision.rule)
        jti = str(uuid.uuid4())
        approval = approval_of(tracked, cause=unused, jti=jti, actor=actor)
        if decision.answer == "refuse":
            return replace(approval, state="rejected", reason=decision.reason)
        return approval

    def _unused(self, cause: str) -> str | None:
        """Return the cause of a new decision by the rule; None if its earlier decision stands.
        Without an earlier decision it is the rule's own cause. After an approval that ended because
        the rule was removed, or because a document was unclear, it is a new cause.
        """
        while (known := self._store.of_cause(cause)) is not None:
            if known.state != "failed" or known.reason not in ("not_allowed", "not_approvable"):
                return None
            cause += "\nagain"
        return cause

    def answer(self, approval: Approval, tracked: TrackedEvent) -> Answer:
        """Return the present answer of an approval's rule about the event. Raises `StoreError`."""
        decision = self._decide(tracked)
        if decision is None or approval.actor != _actor(decision.rule):
            return "refuse"
        return decision.answer

    def _decide(self, tracked: TrackedEvent) -> RuleDecision | None:
        return decide(
            self._rules,
            tracked,
            vm_name=self._vm_name(),
            now=tracked.first_seen + timedelta(seconds=self._seconds_seen(tracked)),
            acknowledged=lambda sink: self._acknowledged(sink, tracked.event.key),
        )

    def _seconds_seen(self, tracked: TrackedEvent) -> float:
        """Return for how many seconds the event has been seen, as this run or this boot measured
        it. The wall clock does not count: if it was wrong, it would let the next VM lead early. For
        an event from before the boot, the uptime is less than the event's age, never more.
        """
        in_this_run = self._clock.monotonic() - self._kept(tracked).since
        if tracked.uptime is None:
            return in_this_run
        return max(in_this_run, uptime(self._clock) - tracked.uptime)

    def _kept(self, tracked: TrackedEvent) -> _Pending:
        """Return what this run keeps about an event."""
        kept = self._pending.get(tracked.event.key)
        if kept is None or kept.first_seen != tracked.first_seen:
            kept = _Pending(first_seen=tracked.first_seen, since=self._clock.monotonic())
            self._pending[tracked.event.key] = kept
        return kept


def _log_once(tracked: TrackedEvent, decision: RuleDecision, kept: _Pending) -> None:
    line = f"{decision.answer}: {decision.explanation}"
    if kept.logged != line:
        kept.logged = line
        extra = {"action": "rule_decision", "rule": decision.rule.name}
        _LOG.info(line, extra={**extra, "event": tracked.event.event_id})


def _actor(rule: Rule) -> str:
    return f"rule:{rule.name}"
