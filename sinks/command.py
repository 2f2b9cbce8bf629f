"""The contract of command channels: how a signed command comes in, and how it is sent.

It never looks into a token: whether one is good is for the bridge to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_TOKEN_BYTES: Final = 8192
"""The largest signed command. Of a longer one, a channel hands in one byte more: enough for the
bridge to refuse it for its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMessage:
    """A signed command as it came in over a sink's own connection, not yet looked at.

    `settled` is called, from another thread and without raising, once what became of it is
    stored (or it was refused): only then may the channel acknowledge it to its sender.
    """

    token: bytes
    channel: str
    """The sink's name."""
    retained: bool = False
    redelivered: bool = False
    """The channel says that it handed over this very message before (MQTT's DUP flag): if it
    was carried out then, this is not reported as a replay."""
    settled: Callable[[], None] = lambda: None


CommandSource = Callable[[CommandMessage], bool]
"""Where a sink hands in commands; False if there are too many, and the message is to be
dropped or to be left unacknowledged. May be called from any thread; returns at once."""


def no_commands(message: CommandMessage) -> bool:
    """A source that takes none."""
    del message
    return False


class CommandSender(ABC):
    """The control plane's end of a command channel, to one VM. For one thread.

    Every method but `close` raises `sinks.base.SinkError` if the other end cannot be reached,
    and `sinks.base.SinkRejected` if it does not allow what is asked.
    """

    @abstractmethod
    def open(self) -> None:
        """Connect, and listen for receipts from now on."""

    @abstractmethod
    def state(self, seconds: float) -> bytes | None:
        """What is pending at the VM, as its state topic has it; None if nothing came in time."""

    @abstractmethod
    def send(self, token: bytes, *, lifetime: int) -> bool:
        """Send a command that is void after `lifetime` seconds; False if no bridge listens now."""

    @abstractmethod
    def receipt(self, seconds: float) -> bytes | None:
        """The next receipt of the VM, for any command; None if none came in time."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Harmless before `open`."""
