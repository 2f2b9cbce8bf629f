"""Refused commands: all are counted; within limits they are logged and answered."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from bridge.approval.verification import CommandRefusedError, Rate
from bridge.clock import Clock
from sinks.base import CommandMessage

_LOG: Final = logging.getLogger(__name__)

REFUSALS_A_MINUTE: Final = 240
"""How many are logged and answered: each answer is a record at every sink."""


class Refusals:
    """Applies the limits. Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """How many there were, by reason."""
        # One limit for signed and one for unsigned commands: a flood of the latter delays no
        # answer.
        self._rates = {signed: Rate(REFUSALS_A_MINUTE, clock.monotonic) for signed in (True, False)}

    def count(self, refused: CommandRefusedError, message: CommandMessage) -> bool:
        """Count a refusal; return whether to answer it: within the limit, if its signature
        identifies the sender, and if the channel has not delivered the same message twice.
        """
        self.counts[refused.reason] += 1
        signed = refused.command is not None
        if not self._rates[signed].allows():
            return False
        self._log(refused, message.channel)
        return signed and not (refused.reason == "replayed" and message.redelivered)

    def _log(self, refused: CommandRefusedError, channel: str) -> None:
        command = refused.command
        _LOG.warning(
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
