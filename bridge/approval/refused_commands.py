"""Refused commands: all are counted; within limits they are logged and answered."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from bridge.approval.verification import (
    RATE_SECONDS,
    CommandRefusedError,
    RateLimit,
    SignedCommand,
)
from bridge.clock import Clock
from sinks.base import CommandMessage

_LOG: Final = logging.getLogger(__name__)

REFUSALS_A_MINUTE: Final = 60
"""How many are logged and answered. Each answer is a record at every sink, so it must not be more
than a slow one takes beside its events.
"""


class RefusedCommands:
    """Applies the limits. Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """How many there were, by reason."""
        self._monotonic = clock.monotonic
        # One limit for signed and one for unsigned commands: a flood of the latter delays no
        # answer.
        self._rates = {
            signed: RateLimit(REFUSALS_A_MINUTE, clock.monotonic) for signed in (True, False)
        }
        self._answered: dict[tuple[str, str, str], float] = {}
        """When each command was last refused for a reason, by its issuer, its jti and the reason:
        for a minute, the oldest first.
        """

    def note_refused(self, refused: CommandRefusedError, message: CommandMessage) -> bool:
        """Note a refusal; return whether to answer it: within the limit, if its signature
        identifies the sender, and if the channel has not delivered the same message twice. A
        command that comes again within a minute is not answered again for the same reason.
        """
        self.counts[refused.reason] += 1
        command = refused.command
        if command is not None and self._was_answered(command, refused.reason):
            return False
        if not self._rates[command is not None].allows():
            return False
        self._log(refused, message.channel)
        return command is not None and not (refused.reason == "replayed" and message.redelivered)

    def note_answered(self, command: SignedCommand, reason: str) -> None:
        """Note that the receipt of a refusal is committed."""
        self._answered[(command.issuer, command.jti, reason)] = self._monotonic()

    def _was_answered(self, command: SignedCommand, reason: str) -> bool:
        """Check whether a command was refused for this reason within the last minute."""
        earliest = self._monotonic() - RATE_SECONDS
        while self._answered and next(iter(self._answered.values())) <= earliest:
            del self._answered[next(iter(self._answered))]
        return (command.issuer, command.jti, reason) in self._answered

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
