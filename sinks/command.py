"""The contract of command channels. It does not read tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMessage:
    """A signed command; the channel may acknowledge it once `on_settled` is called."""

    token: bytes
    channel: str
    """The sink's name."""
    retained: bool = False
    redelivered: bool = False
    """Whether the channel delivered this message before (MQTT's DUP flag)."""
    on_settled: Callable[[], None] = lambda: None


CommandSource = Callable[[CommandMessage], bool]
"""Accepts a command at once, from any thread; returns False if too many are waiting."""


def no_commands(message: CommandMessage) -> bool:
    """Accept no command: the receiver of a bridge that takes none."""
    del message
    return False


class CommandSender(ABC):
    """A control plane's connection to the command channel of one VM. All methods but `close` raise
    `SinkError`, or `SinkRejected` if the other side does not allow it.
    """

    @abstractmethod
    def open(self) -> None:
        """Connect, and listen for receipts from now on."""

    @abstractmethod
    def state(self, seconds: float) -> bytes | None:
        """Return the message on the VM's state topic with its pending events; None if none came in
        time.
        """

    @abstractmethod
    def send(self, token: bytes, *, lifetime: int) -> bool:
        """Send a command that is valid for `lifetime` seconds; return False if no bridge is
        listening now.
        """

    @abstractmethod
    def receipt(self, seconds: float) -> bytes | None:
        """Return the VM's next receipt, for any command; None if none came in time."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Has no effect before `open`."""
