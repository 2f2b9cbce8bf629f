"""The only place that tells IMDS to start an event, after that is on disk."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Final

from bridge.approval.attempts import Attempt
from bridge.approval.decisions import Decisions
from bridge.approval.ledger import Ledger, cause_of, entry_of, entry_of_command
from bridge.approval.policy import Verdict, objection
from bridge.approval.refusals import Refusals
from bridge.approval.trusted_keys import Trust
from bridge.approval.verification import (
    MAX_COMMANDS,
    Command,
    Rate,
    RefusedError,
    Situation,
    verify,
)
from bridge.clock import Clock
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.imds.client import Imds, ImdsError
from bridge.store.approvals import OPEN_STATES, Asked, Entry, State
from bridge.store.database import StoreError
from sinks.base import CommandMessage

log: Final = logging.getLogger(__name__)

_BEGUN: Final = frozenset({"Started", "Completed", "Canceled"})
_OVER: Final = frozenset({"unknown_event", "already_started"})
"""Objections that an earlier request may have caused."""


class Approvals:
    """Carries causes from 'accepted' to a final receipt. For one thread at a time."""

    def __init__(
        self,
        current: CurrentState,
        ledger: Ledger,
        imds: Imds,
        clock: Clock,
        *,
        rulings: Decisions,
        trust: Trust,
    ) -> None:
        self._current = current
        self._ledger = ledger
        self._imds = imds
        self._clock = clock
        self._rulings = rulings
        self._trust = trust
        self._rate = Rate(MAX_COMMANDS, clock.monotonic)
        self._refusals = Refusals(clock)
        self._open: dict[str, Attempt] = {}
        for entry in ledger.unfinished():
            self._note(entry, effect=entry.asked)

    @property
    def refused(self) -> Counter[str]:
        """Commands that were refused, by reason."""
        return self._refusals.counts

    def command(self, message: CommandMessage) -> None:
        """Verify a signed command and carry it out. Raises `StoreError`; then it is not settled."""
        events = self._current.known
        try:
            command = self._verify(message, events)
        except RefusedError as refused:
            self._refuse(refused, message)
            message.settled()
            return
        known = events.get((command.event_id or "").casefold())
        entry = self._write(entry_of_command(command, known), "accepted")
        message.settled()
        if known is not None:
            self._begin(entry)

    def local(
        self, event_id: str, *, user: str, fingerprint: str | None = None, why: str | None = None
    ) -> Entry:
        """Approve for a person on this VM the event as that person saw it. Raises `LookupError` if
        it is gone, begun or changed, and `StoreError`; then nothing was done.
        """
        known = self._known(event_id)
        if known is None or (reason := objection(known, fingerprint)):
            raise LookupError(reason if known else "unknown_event")
        jti, user = str(uuid.uuid4()), user[:100] if user.isprintable() else "unknown"
        cause, actor = f"local\n{jti}", f"local:{user}"
        entry = entry_of(known, cause=cause, jti=jti, actor=actor, why=why)
        return self._begin(self._write(entry, "accepted"))

    def find(self, jti: str) -> Entry | None:
        """How far an approval has come. Raises `StoreError`."""
        return self._ledger.find(jti)

    def polled(self) -> None:
        """After a poll: follow what is under way, then ask the rules. Raises `StoreError`."""
        for attempt in list(self._open.values()):
            self._follow(attempt)
        under_way = {(each.entry.event_id or "").casefold() for each in self._open.values()}
        pending = [key for key, known in self._current.known.items() if known.pending]
        self._rulings.forget_all_but(pending)
        for key in [each for each in pending if each not in under_way]:
            # Each on the newest state: the POST before it may have taken long.
            known = self._known(key)
            ruling = self._rulings.on(known) if known else None
            if ruling and ruling.approve:
                self._ask(self._write(ruling.entry, "accepted"))
            elif ruling:
                self._write(ruling.entry, "rejected", "not_allowed")

    def _verify(self, message: CommandMessage, known: Mapping[str, TrackedEvent]) -> Command:
        now = self._clock.now()
        situation = Situation(
            vm_id=self._current.observer.vm.vm_id,
            now=now,
            known=known,
            used=lambda command: (
                self._ledger.may_have_lost(command.issued, now)
                or self._ledger.has(cause_of(command))
            ),
        )
        retained, trust = message.retained, self._trust
        return verify(
            message.token, retained=retained, trust=trust, situation=situation, rate=self._rate
        )

    def _refuse(self, refused: RefusedError, message: CommandMessage) -> None:
        if self._refusals.note(refused, message) and refused.command is not None:
            self._ledger.answer(
                entry_of_command(refused.command, self._known(refused.command.event_id)),
                self._current.observer,
                self._clock.now(),
                state="rejected",
                reason=refused.reason,
            )

    def _begin(self, entry: Entry) -> Entry:
        """Ask IMDS now after a fresh poll, else after the next; a full disk only delays."""
        try:
            if self._current.lookout.gap(self._clock.now()).looking:
                return self._ask(entry)
            return self._note(self._ledger.asked(entry, "in vain", self._clock.now()))
        except StoreError as error:
            log.warning(str(error), extra={"action": "store_trouble"})
            return entry

    def _follow(self, attempt: Attempt) -> None:
        """Bring an approval under way to its end, or ask IMDS again."""
        entry, known = attempt.entry, self._known(attempt.entry.event_id)
        begun = known is not None and known.event.event_status in _BEGUN
        if begun or known is None or not known.pending or known.first_seen != attempt.first_seen:
            self._write(entry, *attempt.end(begun=begun))
        elif entry.state == "accepted" and attempt.taken:
            self._write(entry, "posted")  # the disk did not take it when IMDS did
        elif entry.state == "accepted" and (reason := objection(known, entry.fingerprint)):
            self._write(entry, "failed", reason)
        elif entry.state == "accepted" and self._clock.monotonic() >= attempt.due:
            self._ask(entry)

    def _ask(self, entry: Entry) -> Entry:
        """Ask IMDS if the decision holds for the event's newest record. Raises `StoreError`."""
        entry = self._note(self._ledger.asked(entry, "maybe", self._clock.now()))
        known, attempt = self._known(entry.event_id), self._open[entry.cause]
        reason = objection(known, entry.fingerprint)
        verdict = Verdict.REFUSE if known is None else self._ground(entry, known)
        if verdict is Verdict.WAIT or (reason in _OVER and attempt.effect != "in vain"):
            return entry
        if known is None or reason or verdict is Verdict.REFUSE:
            return self._write(entry, "failed", reason or "not_allowed")
        # Last: a poll may have committed a change that is not in the state yet.
        if self._ledger.newest_record(known.event.key) != known.record_id:
            return entry
        try:
            self._imds.start(entry.event_id or "")
        except ImdsError as error:
            return self._not_taken(attempt, error)
        attempt.taken = True
        return self._write(entry, "posted")

    def _ground(self, entry: Entry, known: TrackedEvent) -> Verdict:
        """Whether the rule that decided says the same now, or the issuer is still trusted."""
        if entry.by_rule:
            return self._rulings.verdict(entry, known)
        if entry.issuer is None or self._trust.has(entry.issuer):
            return Verdict.APPROVE
        return Verdict.WAIT if self._trust.trouble else Verdict.REFUSE

    def _not_taken(self, attempt: Attempt, error: ImdsError) -> Entry:
        entry = attempt.entry
        log.warning(
            "IMDS did not take the approval",
            extra={"action": "approval_retry", "jti": entry.jti, "reason": str(error)},
        )
        if attempt.failed(error, self._clock.monotonic()):
            return self._write(entry, "failed", "imds_refused")
        return self._note(self._ledger.asked(entry, attempt.effect, self._clock.now()))

    def _write(self, entry: Entry, state: State, reason: str | None = None) -> Entry:
        after = self._note(
            self._ledger.write(
                entry, self._current.observer, self._clock.now(), state=state, reason=reason
            )
        )
        told = {"event": after.event_id, "jti": after.jti, "actor": after.actor, "reason": reason}
        told["why"] = after.why
        log.info("an approval goes on", extra={"action": f"approval.{state}", **told})
        return after

    def _note(self, entry: Entry, *, effect: Asked = "in vain") -> Entry:
        if entry.state not in OPEN_STATES or entry.event_id is None:
            self._open.pop(entry.cause, None)
        elif entry.cause in self._open:
            self._open[entry.cause].entry = entry
        else:
            known = self._known(entry.event_id)
            first_seen = known.first_seen if known else None
            self._open[entry.cause] = Attempt(entry=entry, first_seen=first_seen, effect=effect)
        return entry

    def _known(self, event_id: str | None) -> TrackedEvent | None:
        return self._current.known.get(event_id.casefold()) if event_id else None
