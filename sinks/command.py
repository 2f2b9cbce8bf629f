"""The contract of command channels. It never looks into a token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMessage:
    """A signed command; the channel may acknowledge it once `settled` is called."""

    token: bytes
    channel: str
    """The sink's name."""
    retained: bool = False
    redelivered: bool = False
    """The channel delivered this message before (MQTT's DUP flag)."""
    settled: Callable[[], None] = lambda: None


CommandSource = Callable[[CommandMessage], bool]
"""Takes a command, from any thread, at once; False if there are too many waiting."""


def no_commands(message: CommandMessage) -> bool:
    """A source that takes none."""
    del message
    return False


class CommandSender(ABC):
    """The control plane's end of a command channel, to one VM. All but `close` raise `SinkError`,
    or `SinkRejected` if the other end does not allow it.
    """

    @abstractmethod
    def open(self) -> None:
        """Connect, and listen for receipts from now on."""

    @abstractmethod
    def state(self, seconds: float) -> bytes | None:
        """The events that are pending at the VM, by its state topic; None if none came in time."""

    @abstractmethod
    def send(self, token: bytes, *, lifetime: int) -> bool:
        """Send a command that is void after `lifetime` seconds; False if no bridge listens now."""

    @abstractmethod
    def receipt(self, seconds: float) -> bytes | None:
        """The next receipt of the VM, for any command; None if none came in time."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Harmless before `open`."""
