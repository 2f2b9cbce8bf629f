"""What is said about commands that are refused: a count, a line, an answer; none without limit.

It decides no refusal, and sends nothing.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from hashlib import sha256
from typing import Final

from bridge.approval.verification import Rate, RefusedError
from bridge.clock import Clock
from sinks.base import CommandMessage

log: Final = logging.getLogger(__name__)

REASONS: Final = (
    "too_large",
    "retained",
    "malformed",
    "unknown_key",
    "bad_signature",
    "wrong_audience",
    "expired",
    "not_yet_valid",
    "lifetime_too_long",
    "not_allowed",
    "replayed",
    "unknown_event",
    "event_changed",
    "already_started",
    "rate_limited",
)
"""Why a command can be refused, before IMDS hears of it."""
REFUSALS_A_MINUTE: Final = 240
"""How many are logged one by one, and answered: each answer is a record, on disk and at every sink.
The counter has them all.
"""
TIMES_A_TOKEN: Final = 5
"""How often that is done for one signed token: whoever once saw one on its way can send it for
ever, and each answer goes to every sink."""
_REMEMBERED: Final = 1_000


class Refusals:
    """Keeps the limits. For one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """How many there were, by reason."""
        # One for each side of the signature: what anybody can send holds up no answer.
        self._rates = {signed: Rate(REFUSALS_A_MINUTE, clock.monotonic) for signed in (True, False)}
        self._told: OrderedDict[bytes, int] = OrderedDict()

    def note(self, refused: RefusedError, message: CommandMessage) -> bool:
        """Count a refusal; whether it is to be answered.

        Only where a good signature says whom, not too often, and not where the channel says that
        it hands on one and the same message once more: what became of that is told already.
        """
        self.counts[refused.reason] += 1
        signed = refused.command is not None
        if signed and self._is_told(message.token):
            return False
        if not self._rates[signed].allows():
            return False
        self._log(refused, message.channel)
        return signed and not (refused.reason == "replayed" and message.redelivered)

    def _is_told(self, signed: bytes) -> bool:
        """Whether enough has been said of this token; if not, it counts."""
        token = sha256(signed).digest()  # without the key nobody makes it another one
        times = self._told.pop(token, 0)
        self._told[token] = times + 1
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return times >= TIMES_A_TOKEN

    def _log(self, refused: RefusedError, channel: str) -> None:
        command = refused.command
        log.warning(
            "a command was refused",
            extra={
                "action": "command_refused",
                "reason": refused.reason,
                "channel": channel,
                "issuer": command and command.issuer,
                "jti": command and command.jti,
                "refusals": self.counts[refused.reason],
            },
        )
