"""A broker's end that a test holds: it keeps what is sent, and answers when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jwt
from support.console.stage import ConsoleStage

from sinks.kinds.mqtt.messages import Message


@dataclass
class HeldBroker:
    """Stands in for the connection of a stage's source; `up` says whether it can send."""

    up: bool = True
    sent: list[Message] = field(default_factory=list)
    acknowledges: bool = True
    refuses: str | None = None

    @property
    def name(self) -> str:
        """Of the source."""
        return "web"

    def publish(self, message: Message, on_answer: Callable[[str | None], None]) -> bool:
        """As a source's."""
        if not self.up:
            return False
        self.sent.append(message)
        if self.acknowledges:
            on_answer(self.refuses)
        return True

    @property
    def jtis(self) -> list[str]:
        """Of the tokens that were sent."""
        return [self.claims(each)["jti"] for each in self.sent]

    @staticmethod
    def claims(message: Message) -> dict[str, str]:
        """What a token says, whoever signed it."""
        claims: dict[str, str] = jwt.decode(message.payload, options={"verify_signature": False})
        return claims


def held(stage: ConsoleStage) -> HeldBroker:
    """Let the stage's source send to a broker that the test holds."""
    broker = HeldBroker()
    stage.console.decisions._sender._publishers = {"web": broker}
    return broker
