"""The only place that tells IMDS to start an event, after that is on disk. It carries out what the
table in `transitions.py` says.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bridge.approval.ledger import Ledger, approval_of, approval_of_command, cause_of
from bridge.approval.policy import objection
from bridge.approval.refusals import Refusals
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.transitions import (
    TABLE,
    Fact,
    Situation,
    Stage,
    Transition,
    answer_of,
    stage_of,
)
from bridge.approval.trusted_keys import Trust
from bridge.approval.verification import (
    MAX_COMMANDS,
    LocalState,
    Rate,
    RefusedError,
    SignedCommand,
    verify,
)
from bridge.clock import Clock
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.imds.client import Imds, ImdsError
from bridge.imds.exchange import WithheldError
from bridge.preparation.preparations import Preparations
from bridge.store.approvals import OPEN_STATES, Act, Approval, Effect
from bridge.store.database import StoreError
from sinks.base import CommandMessage

log: Final = logging.getLogger(__name__)

NOTHING_PREPARES: Final = "no sink of this VM has PREPARES=true: there is nothing to prepare"
RETRY_SECONDS: Final = 1.0
"""The pause after the first request that failed; each further pause is doubled."""
MAX_RETRY_SECONDS: Final = 5.0


@dataclass(slots=True, kw_only=True)
class OpenApproval:
    """An approval that has no end yet. Times are monotonic seconds."""

    approval: Approval
    """As it is on disk."""
    stage: Stage
    first_seen: datetime | None
    """When its event appeared."""
    due: float
    """No request is sent before."""
    pause: float = 0.0
    refused: bool = False
    """Whether IMDS refused a request after one that may have worked."""
    fact: Fact | None = None
    """What was last seen of it."""

    @property
    def key(self) -> str:
        """The key of its event."""
        return (self.approval.event_id or "").casefold()


class Approvals:
    """Brings each approval from `accepted` to its end. For one thread at a time."""

    def __init__(
        self,
        current: CurrentState,
        ledger: Ledger,
        imds: Imds,
        clock: Clock,
        *,
        rules: RuleDecisions,
        trust: Trust,
        preparations: Preparations | None = None,
    ) -> None:
        self._current = current
        self._ledger = ledger
        self._imds = imds
        self._clock = clock
        self._rules = rules
        self._trust = trust
        self._preparations = preparations
        self._rate = Rate(MAX_COMMANDS, clock.monotonic)
        self._refusals = Refusals(clock)
        self._open: dict[str, OpenApproval] = {}
        self._unasked: deque[str] = deque()
        """Keys of the events that the rules are still to be asked about since the last poll."""
        trust.refresh()
        for approval in ledger.unfinished():
            self._keep(approval)

    @property
    def verifies(self) -> bool:
        """Whether there is a key by which a command can be verified; any thread may ask."""
        return self._trust.has_keys

    @property
    def refused(self) -> Counter[str]:
        """Commands that were refused, by reason."""
        return self._refusals.counts

    def command(self, message: CommandMessage) -> None:
        """Verify a signed command and accept or reject it. Raises `StoreError`; then it is not
        settled.
        """
        events = self._current.known
        try:
            command = self._verify(message, events)
        except RefusedError as refused:
            self._refuse(refused, message)
            message.settled()
            return
        known = events.get((command.event_id or "").casefold())
        try:
            self._write(approval_of_command(command, known))
        except StoreError:
            self._rate.take_back()
            raise
        message.settled()

    def local(
        self,
        event_id: str,
        *,
        user: str,
        fingerprint: str | None = None,
        why: str | None = None,
        act: Act = "approve",
    ) -> Approval:
        """Accept a person's approval, on this VM, of the event as that person saw it, or that
        person's wish to prepare for it. Raises `LookupError` if it is gone, begun or changed, or if
        nothing prepares, and `StoreError`; then nothing was done.
        """
        if act == "prepare" and self._preparations is None:
            raise LookupError(NOTHING_PREPARES)
        known = self._current.known.get(event_id.casefold())
        if known is None or (reason := objection(known, fingerprint)):
            raise LookupError(reason if known else "unknown_event")
        if act == "prepare" and not known.affects_this_vm:
            raise LookupError("not_allowed: the event does not name this VM")
        jti = str(uuid.uuid4())
        user = user[:100] if user.isprintable() else "unknown"
        cause = f"local\n{jti}"
        actor = f"local:{user}"
        approval = approval_of(known, cause=cause, jti=jti, actor=actor, why=why)
        return self._write(replace(approval, act=act))

    def find(self, jti: str) -> Approval | None:
        """How far an approval has come. Raises `StoreError`."""
        return self._ledger.find(jti)

    def polled(self) -> None:
        """After a poll, good or not, and after `prepare`: follow what is open. It sends no request.
        Raises `StoreError`.
        """
        self._trust.refresh()
        pending = [key for key, known in self._current.known.items() if known.pending]
        self._rules.forget_all_but(pending)
        self._unasked = deque(pending if self._current.is_current() else ())
        for each in list(self._open.values()):
            self._advance(each)

    def prepare(self) -> None:
        """After a poll, good or not, and at a deadline: prepare the VM for what is due. Raises
        `StoreError`.
        """
        if self._preparations is not None:
            self._preparations.look()

    def seconds_to_prepare(self) -> float | None:
        """Seconds until the VM is to be prepared for an event unasked; None if for none. Any thread
        may ask.
        """
        return None if self._preparations is None else self._preparations.seconds_to_deadline()

    def step(self) -> bool:
        """Send at most one request to IMDS, and ask the rules about at most one event. Returns
        whether there was anything to do: then there may be more. Raises `StoreError`.
        """
        posted = self._post_next()
        return self._ask_rules() or posted

    # Verification

    def _verify(self, message: CommandMessage, known: Mapping[str, TrackedEvent]) -> SignedCommand:
        now = self._clock.now()
        local = LocalState(
            vm_id=self._current.observer.vm.vm_id,
            now=now,
            known=known,
            prepares=self._preparations is not None,
            used=lambda command: (
                self._ledger.may_have_lost(command.issued, now)
                or self._ledger.has(cause_of(command))
            ),
        )
        retained = message.retained
        trust = self._trust
        return verify(message.token, retained=retained, trust=trust, local=local, rate=self._rate)

    def _refuse(self, refused: RefusedError, message: CommandMessage) -> None:
        if self._refusals.note(refused, message) and refused.command is not None:
            known = self._current.known.get((refused.command.event_id or "").casefold())
            approval = approval_of_command(refused.command, known)
            rejected = replace(approval, state="rejected", reason=refused.reason)
            self._ledger.answer(rejected, self._current.observer, self._clock.now())

    # Rules

    def _ask_rules(self) -> bool:
        """Accept or reject what a rule decides about the next event; whether one decided."""
        # What IMDS took for an earlier state may have started nothing: rules decide about this one.
        under_way = {
            (each.key, each.approval.fingerprint)
            for each in self._open.values()
            if each.fact is not Fact.EXPIRED
        }
        while self._unasked:
            # Each on the newest state: the request before it may have taken long.
            known = self._current.known.get(self._unasked.popleft())
            if known is None or not known.shown or not self._current.is_current():
                continue
            if (known.event.key, known.fingerprint) in under_way:
                continue
            approval = self._rules.approval(known)
            if approval is not None:
                self._write(approval)
                return True
        return False

    # The state machine

    def _post_next(self) -> bool:
        """Send the request that has been due for the longest time; whether there was one."""
        for each in sorted(self._open.values(), key=lambda each: each.due):
            if self._advance(each).post and self._post(each):
                return True
        return False

    def _advance(self, each: OpenApproval) -> Transition:
        """Follow an approval by what is known now; the transition, which may ask for a request."""
        if each.approval.state != each.stage.state:
            # IMDS took the request, and the disk did not take that.
            self._write(replace(each.approval, state=each.stage.state))
        seen = self._observe(each)
        each.fact = seen.fact
        if each.fact is Fact.UNPREPARED:
            self._ask_to_prepare(seen)
        transition = TABLE[each.fact][each.stage]
        self._end(each, transition, seen.objection)
        return transition

    def _ask_to_prepare(self, seen: Situation) -> None:
        """Have the sink prepare for the event, unless it was asked to already."""
        if self._preparations is not None and seen.known is not None:
            by = "command" if seen.approval.act == "prepare" else "approval"
            self._preparations.ask(seen.known, f"{by}:{seen.approval.jti}")

    def _post(self, each: OpenApproval) -> bool:
        """Ask IMDS to start the event; whether a request was sent. Raises `StoreError`."""
        self._put_effect(each, "maybe")
        seen = self._observe(each)  # writing may have taken long
        if not TABLE[seen.fact][each.stage].post or not self._still_holds(each, seen):
            self._put_effect(each, each.stage.effect)
            return False
        each.due = self._clock.monotonic() + MAX_RETRY_SECONDS  # whatever happens to this one
        error = None
        try:
            event_id = each.approval.event_id or ""
            self._imds.start(event_id, may_send=lambda: self._is_allowed_now(each, seen))
        except WithheldError:
            self._put_effect(each, each.stage.effect)
            return False
        except ImdsError as raised:
            error = raised
        self._answered(each, error)
        return True

    def _answered(self, each: OpenApproval, error: ImdsError | None) -> None:
        answer = answer_of(error, refused_before=each.refused)
        transition = TABLE[answer][each.stage]
        each.refused = each.refused or answer is Fact.REFUSED
        each.stage = transition.stage or each.stage
        each.pause = min(2 * each.pause or RETRY_SECONDS, MAX_RETRY_SECONDS)
        longest = max(each.pause, (error and error.retry_after) or 0.0)
        each.due = self._clock.monotonic() + longest
        if error is not None:
            log.warning(
                "IMDS did not take the approval",
                extra={
                    "action": "approval_retry",
                    "jti": each.approval.jti,
                    "reason": str(error),
                },
            )
        if each.stage is Stage.POSTED:
            self._write(replace(each.approval, state="posted"))
        elif transition.end is None:
            self._put_effect(each, each.stage.effect)
        self._end(each, transition, None)

    def _observe(self, each: OpenApproval) -> Situation:
        known = self._current.known.get(each.key)
        asked = known if known and known.pending and each.stage is not Stage.POSTED else None
        return Situation(
            approval=each.approval,
            known=known,
            first_seen=each.first_seen,
            basis=self._basis(each.approval, asked) if asked else None,
            preparation=self._current.preparation(asked) if asked else None,
            current=self._current.is_current(),
            paused=self._clock.monotonic() < each.due,
            now=self._clock.now(),
        )

    def _basis(self, approval: Approval, known: TrackedEvent) -> Fact | None:
        """WITHDRAWN or WAITING where the rule that decided, or the key that signed, says so."""
        if approval.act == "prepare":
            return None
        if not approval.by_rule:
            return self._key_basis(approval)
        answer = self._rules.answer(approval, known)
        return {"approve": None, "wait": Fact.WAITING, "refuse": Fact.WITHDRAWN}[answer]

    def _key_basis(self, approval: Approval) -> Fact | None:
        """The same where the approval has a key."""
        if approval.issuer is None or (approval.key and self._trust.has(approval.key)):
            return None
        return Fact.WAITING if approval.key and self._trust.trouble else Fact.WITHDRAWN

    def _still_holds(self, each: OpenApproval, seen: Situation) -> bool:
        """Whether the POST that an observation allows is allowed still. Raises `StoreError`."""
        known = seen.known
        if known is None or self._ledger.newest_record(known.event.key) != known.record_id:
            return False  # a poll has committed a change that is not in the state yet
        return self._is_allowed_now(each, seen)

    def _is_allowed_now(self, each: OpenApproval, seen: Situation) -> bool:
        """The same after a wait for the store or for a connection to IMDS, without a wait."""
        known = seen.known
        latest = replace(
            seen,
            basis=self._key_basis(each.approval),
            current=self._current.is_current(),
            now=self._clock.now(),
        )
        return self._current.known.get(each.key) == known and TABLE[latest.fact][each.stage].post

    # What is kept

    def _end(self, each: OpenApproval, transition: Transition, found: str | None) -> None:
        if transition.end is not None:
            reason = transition.reason or (found if transition.end == "failed" else None)
            self._write(replace(each.approval, state=transition.end, reason=reason))

    def _put_effect(self, each: OpenApproval, effect: Effect) -> None:
        if each.approval.effect != effect:
            approval = replace(each.approval, effect=effect)
            self._ledger.put(approval, self._clock.now())
            each.approval = approval

    def _write(self, approval: Approval) -> Approval:
        """Commit an approval in its new state with its receipt. Raises `StoreError`."""
        self._ledger.write(approval, self._current.observer, self._clock.now())
        log.info(
            "an approval has a new state",
            extra={
                "action": f"approval.{approval.state}",
                "event": approval.event_id,
                "jti": approval.jti,
                "actor": approval.actor,
                "reason": approval.reason,
                "why": approval.why,
            },
        )
        self._keep(approval)
        return approval

    def _keep(self, approval: Approval) -> None:
        """Follow an approval until its end; a ping has nothing to follow."""
        if approval.state not in OPEN_STATES or approval.event_id is None:
            self._open.pop(approval.cause, None)
        elif approval.cause in self._open:
            self._open[approval.cause].approval = approval
        else:
            known = self._current.known.get(approval.event_id.casefold())
            self._open[approval.cause] = OpenApproval(
                approval=approval,
                stage=stage_of(approval),
                first_seen=known.first_seen if known else None,
                due=self._clock.monotonic(),
            )
