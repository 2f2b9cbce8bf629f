"""Accepts or rejects what asks for an approval: signed commands, people on this VM, and rules."""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from bridge.approval.approval_values import approval_of, approval_of_command, cause_of, receipt
from bridge.approval.open_approvals import OpenApprovals
from bridge.approval.policy import objection
from bridge.approval.refused_commands import RefusedCommands
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.approval.verification import (
    MAX_COMMANDS,
    SKEW_SECONDS,
    CommandRefusedError,
    LocalState,
    RateLimit,
    SignedCommand,
    verify,
)
from bridge.clock import Clock, uptime
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.imds.client import Imds
from bridge.preparation.preparations import Preparations
from bridge.store.approvals import Act, Approval, ApprovalStore
from bridge.store.database import StoreError
from sinks.base import CommandMessage

NOTHING_PREPARES: Final = "no sink of this VM has PREPARES=true: there is nothing to prepare"


class Approvals:
    """Decides what is approved, and has it carried out. Used by one thread at a time."""

    def __init__(
        self,
        current: CurrentState,
        store: ApprovalStore,
        imds: Imds,
        clock: Clock,
        *,
        rules: RuleDecisions,
        trust: Trust,
        preparations: Preparations | None = None,
    ) -> None:
        self._current = current
        self._store = store
        self._clock = clock
        self._rules = rules
        self._trust = trust
        self._preparations = preparations
        self._rate = RateLimit(MAX_COMMANDS, clock.monotonic)
        self._refusals = RefusedCommands(clock)
        self._unasked: deque[str] = deque()
        """Keys of the events about which the rules have not been asked since the last poll."""
        trust.refresh()
        self._open = OpenApprovals(
            current, store, imds, clock, rules=rules, trust=trust, preparations=preparations
        )

    @property
    def verifies(self) -> bool:
        """Whether a key is trusted that can verify a command; may be read from any thread."""
        return self._trust.has_keys

    @property
    def trust_trouble(self) -> str | None:
        """Why no key is trusted, although a file of keys is configured; None if one is."""
        trust = self._trust
        if trust.trouble is not None or trust.path is None or trust.has_keys:
            return trust.trouble
        return f"the file {trust.path} has no key"

    @property
    def refusals_by_reason(self) -> Counter[str]:
        """How many commands were refused, by reason."""
        return self._refusals.counts

    def command(self, message: CommandMessage) -> None:
        """Verify a signed command and accept or reject it. Raises `StoreError`; then it is not
        settled.
        """
        events = self._current.events
        try:
            command = self._verify(message, events)
        except CommandRefusedError as refused:
            self._refuse(refused, message)
            message.on_settled()
            return
        tracked = events.get((command.event_id or "").casefold())
        try:
            accepted = approval_of_command(command, tracked)
            self._open.save(replace(accepted, uptime=uptime(self._clock)))
        except StoreError:
            self._rate.uncount()
            raise
        message.on_settled()

    def local(
        self,
        event_id: str,
        *,
        user: str,
        fingerprint: str | None = None,
        person_reason: str | None = None,
        act: Act = "approve",
    ) -> Approval:
        """Accept the approval of a person on this VM, for the event as that person saw it, or the
        person's request to prepare for it. Raises `LookupError` if the event is gone, has begun or
        has changed, or if nothing prepares, and `StoreError`; then nothing was done.
        """
        if act == "prepare" and self._preparations is None:
            raise LookupError(NOTHING_PREPARES)
        tracked = self._current.events.get(event_id.casefold())
        if tracked is None or (reason := objection(tracked, fingerprint)):
            raise LookupError(reason if tracked else "unknown_event")
        if act == "prepare" and not tracked.affects_this_vm:
            raise LookupError("not_allowed: the event does not name this VM")
        jti = str(uuid.uuid4())
        user = user[:100] if user.isprintable() else "unknown"
        cause = f"local\n{jti}"
        actor = f"local:{user}"
        approval = approval_of(
            tracked, cause=cause, jti=jti, actor=actor, person_reason=person_reason
        )
        return self._open.save(replace(approval, act=act))

    def find(self, jti: str) -> Approval | None:
        """Return the approval of that id as its last receipt shows it. Raises `StoreError`."""
        return self._store.find(jti)

    def note_poll(self) -> None:
        """Follow open approvals; called after every poll and after `prepare`. Sends no request.
        Raises `StoreError`.
        """
        self._trust.refresh()
        pending = [key for key, tracked in self._current.events.items() if tracked.pending]
        self._rules.forget_all_but(pending)
        self._unasked = deque(pending if self._current.is_current() else ())
        self._open.advance()

    def prepare(self) -> None:
        """Prepare the VM for the events that are due; called after every poll and at a deadline.
        Raises `StoreError`.
        """
        if self._preparations is not None:
            self._preparations.follow()

    def seconds_to_prepare(self) -> float | None:
        """Return the seconds until the VM prepares for an event although nobody asked for it; None
        if there is no such event. Any thread may ask.
        """
        return None if self._preparations is None else self._preparations.seconds_to_deadline()

    def act_once(self) -> bool:
        """Send at most one request to IMDS, and ask the rules about at most one event. Return
        whether there was anything to do: then there may be more. Raises `StoreError`.
        """
        posted = self._open.post_next()
        return self._ask_rules() or posted

    # Verification

    def _verify(self, message: CommandMessage, events: Mapping[str, TrackedEvent]) -> SignedCommand:
        now = self._clock.now()
        local = LocalState(
            vm_id=self._current.observer.vm.vm_id,
            now=now,
            events=events,
            prepares=self._preparations is not None,
            used=lambda command: (
                self._store.may_have_lost(command.issued, now, skew=SKEW_SECONDS)
                or self._store.has(cause_of(command))
            ),
            time_of=self._current.time_of,
        )
        retained = message.retained
        trust = self._trust
        return verify(message.token, retained=retained, trust=trust, local=local, rate=self._rate)

    def _refuse(self, refused: CommandRefusedError, message: CommandMessage) -> None:
        command = refused.command
        if self._refusals.note_refused(refused, message) and command is not None:
            tracked = self._current.events.get((command.event_id or "").casefold())
            approval = approval_of_command(command, tracked)
            rejected = replace(approval, state="rejected", reason=refused.reason)
            self._store.add_receipt(receipt(rejected, self._current.observer, self._clock.now()))
            self._refusals.note_answered(command, refused.reason)

    # Rules

    def _ask_rules(self) -> bool:
        """Accept or reject the next event by the rules; return whether a rule decided."""
        while self._unasked:
            # Each on the newest state: the request before it may have taken long.
            tracked = self._current.events.get(self._unasked.popleft())
            if tracked is None or not tracked.shown or not self._current.is_current():
                continue
            if self._open.has_one_under_way(tracked):
                continue
            approval = self._rules.approval(tracked)
            if approval is not None:
                self._open.save(approval)
                return True
        return False
