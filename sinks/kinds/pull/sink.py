"""The HTTPS command channel: its records are receipts, and its connection brings commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Final

from sinks.base import (
    Check,
    Sink,
    SinkContext,
    SinkError,
    SinkPaused,
    SinkRejected,
    SinkSettings,
)
from sinks.http.check import check_address
from sinks.http.client import HttpClient, HttpLimits
from sinks.http.outcome import judge
from sinks.kinds.pull.poll import WAIT_SECONDS, HandedIn, Poll
from sinks.kinds.pull.settings import HINTS, PullSettings
from wire.record import APPROVAL, CONTENT_TYPE, Record

_SPARE_SECONDS: Final = 5.0
"""The part of the deadline that remains after the last possible answer."""


class PullSink(Sink[PullSettings]):
    """Fetches signed commands by a long poll over HTTPS, and posts their receipts to the same
    place; SEB_COMMANDS__PULL_URL sets it up.
    """

    KIND: ClassVar[str] = "pull"
    Settings: ClassVar[type[SinkSettings]] = PullSettings
    BATCH: ClassVar[int] = 50
    LIMITS: ClassVar[HttpLimits] = HttpLimits(
        connect=5.0, read=WAIT_SECONDS + 10.0, total=WAIT_SECONDS + 15.0
    )
    """The limits of a request for commands."""
    RECEIPT_LIMITS: ClassVar[HttpLimits] = HttpLimits()
    """The limits of the POST of a receipt."""
    BATCH_SECONDS: ClassVar[float] = 20.0
    """The seconds after which no further POST of a batch is started."""
    STOP_SECONDS: ClassVar[float] = 1.0

    def __init__(self, name: str, settings: PullSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._client: HttpClient | None = None
        self._poll: Poll | None = None
        self.handed_in = HandedIn()
        """Kept as long as the sink: a copy is not a new command because the connection broke."""
        self._trouble: SinkError | None = None

    @property
    def deadline(self) -> float:
        """Seconds; the sink's own limits end a call before that."""
        poll = self.LIMITS
        post = self.RECEIPT_LIMITS
        turn = self.BATCH_SECONDS + post.connect + post.total
        return max(poll.connect + poll.total, turn) + _SPARE_SECONDS

    def accepts(self, record_type: str, concerns_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Check whether a record is a receipt: the sink takes nothing else."""
        del concerns_this_vm
        return record_type == APPROVAL

    def open(self) -> None:
        """Ask for commands once, then in a thread; `maintain` raises its errors."""
        self.close()
        self._poll = poll = Poll(
            self.settings, self.context, self.handed_in, name=self.name, limits=self.LIMITS
        )
        try:
            poll.start(poll.fetch(wait=0))
        except SinkError as error:
            self._trouble = error

    def deliver(self, records: Sequence[Record]) -> None:
        """Post the receipts, in order. Raises `SinkError`, `SinkPaused` or `SinkRejected`; the poll
        goes on, except after `SinkPaused`.
        """
        begun = time.monotonic()
        for done, record in enumerate(records):
            if done and time.monotonic() - begun > self.BATCH_SECONDS:
                raise SinkError(
                    f"{self._where}: slow: {done} of {len(records)} receipts in "
                    f"{self.BATCH_SECONDS:g} s; the others follow",
                    delivered=done,
                    stays_open=True,
                )
            try:
                self._post(record)
            except (SinkError, SinkRejected) as error:
                error.delivered = done
                # A server that wants receipts later may have commands now.
                error.stays_open = not isinstance(error, SinkPaused)
                self._close_client()
                raise

    def maintain(self) -> None:
        """Raise `SinkError` if commands cannot be fetched."""
        if self._trouble is not None:
            raise self._trouble
        if self._poll is None:
            raise SinkError("the sink is not open")
        self._poll.ensure()

    def check(self) -> Sequence[Check]:
        """Check token, name, connection and certificate; a request would take commands away."""
        found = []
        try:
            if not self.settings.authorization():
                found.append(
                    Check.warn(
                        "no bearer token: the server cannot tell who asks for commands",
                        "set SEB_COMMANDS__PULL_TOKEN or SEB_COMMANDS__PULL_TOKEN_FILE",
                    )
                )
        except SinkError as error:
            found.append(Check.problem(error.problem, "let seb read it"))
        return (*found, *check_address(self.settings.address, self.LIMITS))

    def abort(self) -> None:
        """Cut both connections."""
        poll = self._poll
        client = self._client
        if poll is not None:
            poll.cut()
        if client is not None:
            client.abort()

    def close(self) -> None:
        """End the poll and close the connections; takes about a second at most."""
        poll = self._poll
        self._poll = None
        self._trouble = None
        if poll is not None:
            poll.stop(seconds=self.STOP_SECONDS)
        self._close_client()

    @property
    def _where(self) -> str:
        return f"{self.settings.shown} (receipts)"

    def _close_client(self) -> None:
        client = self._client
        self._client = None
        if client is not None:
            client.close()

    def _post(self, record: Record) -> None:
        if self._poll is None:
            raise SinkError("the sink is not open")
        if self._client is None:
            address = f"{self.settings.address}/receipts"
            self._client = HttpClient(address, self.RECEIPT_LIMITS, shown=self._where)
        headers = {
            **self.settings.authorization(),
            "Accept": "*/*",
            "User-Agent": f"scheduled-events-bridge/{self.context.version}",
            "Content-Type": CONTENT_TYPE,
        }
        judge(
            self._client.post(record.body, headers),
            shown=self._where,
            now=self.context.now(),
            hints=HINTS,
            resume=f"resume it with: seb outbox retry {self.name}",
        )
