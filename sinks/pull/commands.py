"""Commands fetched over HTTPS, for networks that allow only connections that go out.

A sink by its form only: it takes no records, and so can neither delay nor lose one. What it has is
a sink's worker, which says when commands cannot be fetched and when they can again, and waits ever
longer in between. It never counts on an order between commands and receipts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sinks.base import Check, Sink, SinkContext, SinkError, SinkSettings
from sinks.http.check import look_at_address
from sinks.http.client import Limits
from sinks.pull.poll import WAIT_SECONDS, Poll
from sinks.pull.settings import PullSettings
from sinks.record import EventRecord


class PullSink(Sink[PullSettings]):
    """Fetches signed commands by a long poll over HTTPS; it is set up by SEB_COMMANDS__PULL_URL."""

    KIND: ClassVar[str] = "pull"
    Settings: ClassVar[type[SinkSettings]] = PullSettings
    LIMITS: ClassVar[Limits] = Limits(
        connect=5.0, read=WAIT_SECONDS + 10.0, total=WAIT_SECONDS + 15.0
    )
    STOP_SECONDS: ClassVar[float] = 1.0

    def __init__(self, name: str, settings: PullSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._poll: Poll | None = None

    @property
    def deadline(self) -> float:
        """Seconds; the sink's own limits end a call before that."""
        return self.LIMITS.total + self.LIMITS.connect

    def accepts(self, record_type: str, affects_this_vm: bool | None) -> bool:  # noqa: FBT001
        """No record at all: receipts have a sink of their own."""
        del record_type, affects_this_vm
        return False

    def open(self) -> None:
        """Ask once without waiting, and if that works, go on asking in a thread of its own.

        Raises `SinkError` where commands cannot be fetched.
        """
        self.close()
        self._poll = Poll(self.settings, self.context, name=self.name, limits=self.LIMITS)
        self._poll.start(self._poll.fetch(wait=0))

    def deliver(self, records: Sequence[EventRecord]) -> None:
        """Nothing: `accepts` takes no record."""

    def maintain(self) -> None:
        """Raise `SinkError` where the poll has met lasting trouble since."""
        if self._poll is None:
            raise SinkError("the sink is not open")
        self._poll.ensure()

    def check(self) -> Sequence[Check]:
        """Token, name, connection and certificate; no request is sent, for it would take commands
        away from the bridge.
        """
        found = []
        try:
            if not self.settings.authorization():
                found.append(
                    Check(
                        level="warn",
                        text="no bearer token: the server cannot tell who asks for commands",
                        remedy="set SEB_COMMANDS__PULL_TOKEN or SEB_COMMANDS__PULL_TOKEN_FILE",
                    )
                )
        except SinkError as error:
            what, remedy = error.problem.what, error.problem.remedy or "let seb read it"
            found.append(Check(level="fail", text=what, remedy=remedy))
        return (*found, *look_at_address(self.settings.address, self.LIMITS))

    def abort(self) -> None:
        """Cut the poll off."""
        poll = self._poll
        if poll is not None:
            poll.cut()

    def close(self) -> None:
        """End the poll; about a second at most."""
        poll, self._poll = self._poll, None
        if poll is not None:
            poll.stop(seconds=self.STOP_SECONDS)
