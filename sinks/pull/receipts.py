"""Receipts posted to where the commands came from, each as the CloudEvent that it is.

It never sends anything but receipts, and never stops them because commands cannot be fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from sinks.base import Check, Sink, SinkContext, SinkError, SinkSettings
from sinks.http.check import look_at_address
from sinks.http.client import Client, Limits
from sinks.http.outcome import judge
from sinks.pull.settings import PullSettings
from sinks.record import APPROVAL, CONTENT_TYPE, EventRecord

TOKEN_HINT: Final = "see that SEB_COMMANDS__PULL_TOKEN or its file is what the server asks for"  # noqa: S105
URL_HINT: Final = "see that SEB_COMMANDS__PULL_URL is right"
_HINTS: Final = {401: TOKEN_HINT, 403: TOKEN_HINT, 404: URL_HINT, 405: URL_HINT}


class ReceiptSink(Sink[PullSettings]):
    """The receipts' end of fetching commands over HTTPS: one POST per receipt."""

    KIND: ClassVar[str] = "pull_receipts"
    Settings: ClassVar[type[SinkSettings]] = PullSettings
    LIMITS: ClassVar[Limits] = Limits()

    def __init__(self, name: str, settings: PullSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._client: Client | None = None

    @property
    def deadline(self) -> float:
        """Seconds; the sink's own limits end a call before that."""
        return self.LIMITS.total + self.LIMITS.connect

    def accepts(self, record_type: str, affects_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Receipts and nothing else."""
        del affects_this_vm
        return record_type == APPROVAL

    def open(self) -> None:
        """Get ready; the connection is made by the first receipt."""
        self.close()
        self._client = Client(f"{self.settings.address}/receipts", self.LIMITS)

    def deliver(self, records: Sequence[EventRecord]) -> None:
        """Post the receipts.

        Raises `SinkError` where one was not taken, `SinkPaused` on 410, `SinkRejected` where the
        answer says that trying again is no use.
        """
        if self._client is None:
            self.open()
        assert self._client is not None  # noqa: S101 - just opened
        for record in records:
            try:
                answer = self._client.post(
                    record.body,
                    {
                        **self.settings.authorization(),
                        "Accept": "*/*",
                        "User-Agent": f"scheduled-events-bridge/{self.context.version}",
                        "Content-Type": CONTENT_TYPE,
                    },
                )
            except SinkError as error:
                raise SinkError(error.problem.at(self.settings.shown)) from None
            judge(
                answer,
                shown=f"{self.settings.shown} (receipts)",
                now=self.context.now(),
                hints=_HINTS,
                resume=f"let it go on with: seb outbox retry {self.name}",
            )

    def check(self) -> Sequence[Check]:
        """Name, connection and certificate; no request is sent."""
        return tuple(look_at_address(self.settings.address, self.LIMITS))

    def abort(self) -> None:
        """Cut the connection."""
        client = self._client
        if client is not None:
            client.abort()

    def close(self) -> None:
        """Close the kept connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
