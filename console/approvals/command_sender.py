"""Signs commands and sends each over the channel of its VM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Final

from sqlalchemy import Connection

from console.db.decisions import decision_rows
from console.fleet.candidates import PULL
from console.fleet.values.decision import VmCommand
from console.ingest.readers import SourcePublisher
from console.signing.signer import Signer, SigningError
from sinks.base import SinkError
from sinks.kinds.mqtt.messages import Message, topics_of

_LOG: Final = logging.getLogger("console")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingCommand:
    """A command that is claimed and stored, with the site of its VM."""

    command: VmCommand
    site: str


def with_site(connection: Connection, command: VmCommand) -> OutgoingCommand | None:
    """Return the command with the site of its VM, or None if the VM is not known any more."""
    site = decision_rows.site_of(connection, command.vm_id)
    return None if site is None else OutgoingCommand(command=command, site=site)


AnswerCallback = Callable[[VmCommand, str | None], None]
"""Called with a command and None once the broker has it, or with the reason for which it refuses
it.
"""


class VmCommandSender:
    """Sends commands. All methods may be called from any thread."""

    def __init__(
        self,
        signer: Signer | None,
        publishers: Mapping[str, SourcePublisher],
        *,
        offer: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._signer = signer
        self._publishers = publishers
        self._offer = offer
        self._clock = clock

    def send(self, outgoing: OutgoingCommand, on_answer: AnswerCallback) -> bool:
        """Sign and send a command; return whether it was sent. `on_answer` is called once the
        broker has it. A VM that polls over HTTPS is only woken: the token is signed when it polls.
        """
        command = outgoing.command
        if command.channel == PULL:
            self._offer(command.vm_id, command.jti)
            return True
        publisher = self._publishers.get(command.channel)
        if publisher is None:
            return False
        try:
            where = topics_of(site=outgoing.site, vm_id=command.vm_id)
            token = self.token(command)
        except (SinkError, SigningError) as error:
            _LOG.error("%s", error, extra={"action": "command_not_sent", "jti": command.jti})
            return False
        message = Message(
            topic=where.command,
            payload=token,
            content_type="application/jwt",
            expiry=max(1, floor(command.expires_at - self._clock())),
        )
        return publisher.publish(message, lambda reason: on_answer(command, reason))

    def token(self, command: VmCommand) -> bytes:
        """Return the signed token of a command; it is stored nowhere. Raises `SigningError`."""
        if self._signer is None:
            raise SigningError("SEB_CONSOLE_KEY is not set")
        return self._signer.sign(command, self._clock())
