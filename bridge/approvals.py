"""The one place that tells IMDS to start an event, because a rule, a command or a person said so.

It acts on stored causes only: what it is about to do is on disk before IMDS hears of it. It never
decides whether a cause is good: `policy` and `commands` do.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from typing import Final

from bridge.clock import Clock
from bridge.commands import MAX_COMMANDS, Command, Rate, RefusedError, Situation, verify
from bridge.imds import Imds, ImdsError
from bridge.known import KnownEvent
from bridge.ledger import OPEN_STATES, Entry, Ledger, entry_of
from bridge.poller import Poller
from bridge.receipts import State
from bridge.rulings import Rulings
from bridge.trust import Trust
from sinks.base import CommandMessage

log: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""How soon IMDS is asked again where it could not be reached; each further wait is doubled."""
MAX_RETRY_SECONDS: Final = 5.0
LINES_A_MINUTE: Final = 60
"""How many refusals are logged one by one; the counter has them all."""
_REFUSED_FOR_GOOD: Final = frozenset(f"http_{code}" for code in (400, 401, 403, 404, 405))
_BEGUN: Final = frozenset({"Started", "Completed", "Canceled"})
_CERTAINLY_IN_VAIN: Final = frozenset({"refused", "http_429"})


class Approvals:
    """Carries causes from 'accepted' to a final receipt. For one thread at a time."""

    def __init__(
        self,
        poller: Poller,
        ledger: Ledger,
        imds: Imds,
        clock: Clock,
        *,
        rulings: Rulings,
        trust: Trust,
    ) -> None:
        self._poller = poller
        self._ledger = ledger
        self._imds = imds
        self._clock = clock
        self._rulings = rulings
        self._trust = trust
        self._good, self._answers = Rate(MAX_COMMANDS), Rate(MAX_COMMANDS)
        self._lines = Rate(LINES_A_MINUTE)
        self._open = {entry.cause: entry for entry in ledger.unfinished()}
        self._retries: dict[str, tuple[float, float]] = {}
        self.refused: Counter[str] = Counter()
        """Commands that were refused, by reason."""

    def command(self, message: CommandMessage) -> None:
        """Verify a signed command and carry it out. Raises `StoreError`: then nothing was done."""
        try:
            command = self._verify(message)
        except RefusedError as refused:
            self._refuse(refused, message.channel)
            message.settled()
            return
        known = self._known(command.event_id)
        entry = self._write(_of_command(command, known), "accepted")
        message.settled()
        if known is not None:
            self._post(entry)

    def local(self, event_id: str, *, user: str) -> Entry:
        """Carry out what a person on this VM said.

        Raises `LookupError` where there is no such event or it is no longer Scheduled, and
        `StoreError`.
        """
        known = self._known(event_id)
        if known is None or not known.pending:
            raise LookupError("unknown_event")
        if known.event.event_status != "Scheduled":
            raise LookupError("already_started")
        jti = str(uuid.uuid4())
        entry = entry_of(known, cause=f"local\n{jti}", jti=jti, actor=f"local:{user}")
        return self._post(self._write(entry, "accepted"))

    def polled(self) -> None:
        """IMDS was just looked at: follow what is under way, then ask the rules.

        Raises `StoreError`; the next look does it again.
        """
        for entry in list(self._open.values()):
            self._follow(entry)
        under_way = {(entry.event_id or "").casefold() for entry in self._open.values()}
        for key, known in self._poller.known().items():
            ruling = None if key in under_way else self._rulings.on(known)
            if ruling is not None and ruling.approve:
                self._post(self._write(ruling.entry, "accepted"))
            elif ruling is not None:
                self._write(ruling.entry, "rejected", "not_allowed")

    def _verify(self, message: CommandMessage) -> Command:
        situation = Situation(
            vm_id=self._poller.observer.vm.vm_id,
            now=self._clock.now(),
            known=self._poller.known(),
            used=lambda command: self._ledger.has(_cause(command)),
        )
        return verify(
            message.token,
            retained=message.retained,
            trust=self._trust,
            situation=situation,
            rate=self._good,
        )

    def _refuse(self, refused: RefusedError, channel: str) -> None:
        """Count a refusal; answer it only where a good signature says whom, and not too often."""
        self.refused[refused.reason] += 1
        now, command = self._clock.now(), refused.command
        if self._lines.allows(now.timestamp()):
            log.warning(
                "a command was refused",
                extra={
                    "action": "command_refused",
                    "reason": refused.reason,
                    "channel": channel,
                    "jti": command and command.jti,
                    "refusals": self.refused[refused.reason],
                },
            )
        if command is not None and self._answers.allows(now.timestamp()):
            entry = _of_command(command, self._known(command.event_id))
            self._ledger.answer(
                entry, self._poller.observer, now, state="rejected", reason=refused.reason
            )
            self._poller.committed()

    def _follow(self, entry: Entry) -> None:
        """Bring an entry on its way to its end, or ask IMDS again."""
        known = self._known(entry.event_id)
        if known is None or not known.pending or known.event.event_status in _BEGUN:
            if entry.state == "accepted" and entry.asked == "in vain":
                self._write(entry, "failed", "imds_unreachable")
            else:
                self._write(entry, "confirmed")
        elif entry.state == "accepted" and self._is_due(entry):
            if known.fingerprint != entry.fingerprint:
                self._write(entry, "failed", "event_changed")
            else:
                self._post(self._ledger.about_to_ask(entry, self._clock.now()))

    def _post(self, entry: Entry) -> Entry:
        """Ask IMDS to start the event, and write down what became of it."""
        try:
            self._imds.start(entry.event_id or "")
        except ImdsError as error:
            if error.reason in _REFUSED_FOR_GOOD:
                return self._write(entry, "failed", "imds_refused")
            if error.reason in _CERTAINLY_IN_VAIN:
                entry = self._open[entry.cause] = self._ledger.in_vain(entry, self._clock.now())
            self._put_off(entry, error)
            return entry
        return self._write(entry, "posted")

    def _put_off(self, entry: Entry, error: ImdsError) -> None:
        _, wait = self._retries.get(entry.cause, (0.0, RETRY_SECONDS / 2))
        wait = min(2 * wait, MAX_RETRY_SECONDS)
        self._retries[entry.cause] = (self._clock.monotonic() + wait, wait)
        log.warning(
            "IMDS did not take the approval and will be asked again",
            extra={"action": "approval_retry", "jti": entry.jti, "reason": str(error)},
        )

    def _is_due(self, entry: Entry) -> bool:
        due, _ = self._retries.get(entry.cause, (0.0, 0.0))
        return self._clock.monotonic() >= due

    def _write(self, entry: Entry, state: State, reason: str | None = None) -> Entry:
        """The next state of an entry, on disk with its receipt; then the sinks are woken."""
        after = self._ledger.write(
            entry, self._poller.observer, self._clock.now(), state=state, reason=reason
        )
        if state in OPEN_STATES and after.event_id is not None:
            self._open[after.cause] = after
        else:
            self._open.pop(after.cause, None)
            self._retries.pop(after.cause, None)
        log.info(
            "an approval goes on",
            extra={
                "action": f"approval.{state}",
                "event": after.event_id,
                "jti": after.jti,
                "actor": after.actor,
                "reason": reason,
            },
        )
        self._poller.committed()
        return after

    def _known(self, event_id: str | None) -> KnownEvent | None:
        return self._poller.known().get(event_id.casefold()) if event_id else None


def _cause(command: Command) -> str:
    """What makes a command one and the same over every channel and after every restart."""
    return f"command\n{command.issuer}\n{command.jti}"


def _of_command(command: Command, known: KnownEvent | None) -> Entry:
    return Entry(
        cause=_cause(command),
        jti=command.jti,
        event_id=known.event.event_id if known else command.event_id,
        fingerprint=command.fingerprint,
        actor=command.subject,
        issuer=command.issuer,
        resources=known.event.resources if known else (),
    )
