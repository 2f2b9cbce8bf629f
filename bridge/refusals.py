"""What is said about commands that are refused: a count, a line, an answer; none without limit.

It decides no refusal, and sends nothing.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from hashlib import sha256
from typing import Final

from bridge.clock import Clock
from bridge.commands import Rate, RefusedError
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
LINES_A_MINUTE: Final = 240
"""How many refusals are logged one by one; the counter has them all."""
ANSWERS_A_MINUTE: Final = 240
"""How many are answered: each answer is a record, on disk and at every sink."""
ANSWERS_A_TOKEN: Final = 5
"""How often one refused token is answered: whoever once saw one on its way can send it for ever,
and each answer goes to every sink."""
_REMEMBERED: Final = 1_000


class Refusals:
    """Keeps the limits. For one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """How many there were, by reason."""
        self._answers = Rate(ANSWERS_A_MINUTE, clock.monotonic)
        self._lines = Rate(LINES_A_MINUTE, clock.monotonic)
        self._answered: OrderedDict[bytes, int] = OrderedDict()

    def note(self, refused: RefusedError, message: CommandMessage) -> bool:
        """Count a refusal; whether it is to be answered.

        Only where a good signature says whom, not too often, and not where the channel says that
        it hands on one and the same message once more: what became of that is told already.
        """
        self.counts[refused.reason] += 1
        if self._lines.allows():
            self._log(refused, message.channel)
        if refused.command is None or (refused.reason == "replayed" and message.redelivered):
            return False
        token = sha256(message.token).digest()  # without the key nobody makes it another one
        answered = self._answered.pop(token, 0)
        self._answered[token] = answered + 1
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)
        return answered < ANSWERS_A_TOKEN and self._answers.allows()

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
