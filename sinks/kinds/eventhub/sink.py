"""The sink for an Azure Event Hub. It never sends a token without TLS beyond this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from sinks.base import Check, Sink, SinkContext, SinkError, SinkRejected, SinkSettings
from sinks.kinds.eventhub.errors import HubTrouble, diagnose
from sinks.kinds.eventhub.settings import EventHubSettings
from wire.record import Record

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.eventhub import EventDataBatch

    from sinks.kinds.eventhub.producer import HubProducer

SEND_SECONDS: Final = 8.0
PUMP_SECONDS: Final = 30.0
MALFORMED_TRIES: Final = 5
DEADLINE_SECONDS: Final = 20.0
# After so long no further send is begun: a turn that passes the deadline is abandoned, and what
# the hub acknowledged in it would be forgotten.
BATCH_SECONDS: Final = DEADLINE_SECONDS - SEND_SECONDS - 2.0


class BatchSize:
    """How many records one send may have: halved if an answer is slow, doubled if it is fast."""

    def __init__(self, *, most: int, seconds: float) -> None:
        """Start with at most `most` records; one send may take `seconds`."""
        self._most = most
        self._soon = seconds / 4  # so that twice as many still take no more than half of it
        self.size = most
        """How many records the next send may have, at least 1."""

    def note_sent(self, seconds: float) -> None:
        """Note that a send was acknowledged after so many seconds."""
        if seconds <= self._soon:
            self.size = min(self._most, self.size * 2)

    def note_failed(self, records: int) -> None:
        """Note that a send of so many records ended without an answer."""
        self.size = max(1, min(self.size, records) // 2)


class _Filled(NamedTuple):
    batch: EventDataBatch
    size: int


class EventHubSink(Sink[EventHubSettings]):
    """An Azure event hub, over AMQP: records in order, under the VM's partition key."""

    KIND: ClassVar[str] = "eventhub"
    Settings: ClassVar[type[SinkSettings]] = EventHubSettings
    BATCH: ClassVar[int] = 100

    def __init__(self, name: str, settings: EventHubSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._link: HubProducer | None = None
        self._credential: TokenCredential | None = None
        self._aborted = threading.Event()
        self._last_answer = 0.0
        self._pace = BatchSize(most=self.BATCH, seconds=SEND_SECONDS)

    @property
    def deadline(self) -> float:
        """The deadline of a call, in seconds: enough for a connect and two sends, and less than the
        30 s of notice before a Preempt.
        """
        return DEADLINE_SECONDS

    def open(self) -> None:
        """Connect, authenticate and attach. Raises `SinkError`."""
        self._discard()
        self._connect()

    def deliver(self, records: Sequence[Record]) -> None:
        """Send the records in order, in few batches. Raises `SinkRejected` or `SinkError`."""
        begun = time.monotonic()
        done = 0
        most = len(records)
        while done < len(records):
            if done and time.monotonic() - begun > BATCH_SECONDS:
                raise SinkError(
                    f"{self._where()}: the line is slow: {done} of {len(records)} records in "
                    f"{BATCH_SECONDS:g} s; the others follow",
                    delivered=done,
                )
            size = min(most, self._pace.size)
            filled = self._fill(records[done : done + size], delivered=done)
            trouble = self._send(filled, delivered=done)
            if trouble is None:
                done += filled.size
            elif filled.size > 1:
                # One of the records is the cause: smaller batches will find it.
                most = filled.size // 2
            else:
                tries = 1 if trouble.kind == "large" else MALFORMED_TRIES
                raise SinkRejected(trouble.text(self._where()), delivered=done, tries=tries)

    def maintain(self) -> None:
        """Check the link every half minute, and open it again if the hub ended it. Raises
        `SinkError`.
        """
        link = self._link
        if link is None or time.monotonic() - self._last_answer < PUMP_SECONDS:
            return
        self._last_answer = time.monotonic()
        try:
            link.pump()
        except Exception as error:  # noqa: BLE001  # the SDK raises almost anything
            trouble = self._diagnose(error)
            self._discard()
            if trouble.kind != "lost":
                raise trouble.error(link.address) from None
            self._connect()

    def check(self) -> Sequence[Check]:
        """Attach a link, which proves the right to send, and count the partitions; takes at most 30
        s.
        """
        from sinks.kinds.eventhub.check import check_hub  # noqa: PLC0415  # see _new_link

        try:
            return tuple(check_hub(self._new_link()))
        except SinkError as error:
            remedy = "correct the setting, or the file that it names"
            return (Check.problem(error.problem, remedy),)

    def abort(self) -> None:
        """Cut the connection under a stuck call, from another thread; returns at once and never
        raises.
        """
        self._aborted.set()
        link = self._link
        if link is not None:
            link.cut()

    def close(self) -> None:
        """Detach and disconnect, within 3 seconds. Has no effect when closed."""
        self._discard()

    def _where(self) -> str:
        return str(self._link.address) if self._link is not None else f"the hub of {self.name}"

    def _fill(self, records: Sequence[Record], *, delivered: int) -> _Filled:
        from sinks.kinds.eventhub.message import fill  # noqa: PLC0415  # see _new_link

        link = self._link or self._connect(delivered=delivered)
        try:
            batch = link.batch(records[0].partition_key)
        except Exception as error:  # noqa: BLE001  # the SDK raises almost anything
            raise self._lost(error).error(link.address, delivered=delivered) from None
        size = fill(batch, records)
        if size == 0:
            raise SinkRejected(
                f"{link.address}: the record of {len(records[0].body)} bytes is larger than the "
                f"{batch.max_size_in_bytes} bytes that the hub takes; a higher tier takes more",
                delivered=delivered,
            )
        return _Filled(batch, size)

    def _send(self, filled: _Filled, *, delivered: int) -> HubTrouble | None:
        """Send the batch. If the link had ended, send it once more on a new link. Return None once
        acknowledged, or the trouble if it is about the records. Raises `SinkError` for any other
        trouble.
        """
        first = True
        while True:
            link = self._link or self._connect(delivered=delivered)
            begun = time.monotonic()
            try:
                link.send(filled.batch, seconds=SEND_SECONDS)
            except Exception as error:  # noqa: BLE001  # the SDK raises almost anything
                trouble = self._lost(error)
            else:
                self._last_answer = time.monotonic()
                self._pace.note_sent(self._last_answer - begun)
                return None
            if trouble.kind in ("large", "malformed"):
                return trouble
            if trouble.kind != "lost" or not first:
                if trouble.kind in ("timeout", "lost"):
                    self._pace.note_failed(filled.size)
                raise trouble.error(link.address, delivered=delivered) from None
            first = False

    def _lost(self, error: Exception) -> HubTrouble:
        """Return the diagnosis of an exception, and close the link if it cannot be used again."""
        trouble = self._diagnose(error)
        if trouble.link_lost:
            self._discard()
        return trouble

    def _diagnose(self, error: Exception) -> HubTrouble:
        condition = self._link.condition() if self._link is not None else None
        return diagnose(error, link_condition=condition)

    def _connect(self, *, delivered: int = 0) -> HubProducer:
        link = self._link = self._new_link(delivered=delivered)
        try:
            if self._aborted.is_set():
                link.cut()  # the abort came while there was no link to cut
            link.open()
        except Exception as error:  # noqa: BLE001  # the SDK raises almost anything
            trouble = self._diagnose(error)
            self._discard()
            raise trouble.error(link.address, delivered=delivered) from None
        self._last_answer = time.monotonic()
        return link

    def _new_link(self, *, delivered: int = 0) -> HubProducer:
        # The SDK costs 0.1 s and 5 MiB or more (measured): a command that only reads settings
        # should not pay for it, and a bridge that starts should poll first.
        from sinks.kinds.eventhub.producer import HubProducer  # noqa: PLC0415

        try:
            address = self.settings.address()
            proxy = self.settings.proxy_to(address)
            if self.settings.namespace is not None and self._credential is None:
                self._credential = _managed_identity()
        except SinkError as error:
            raise SinkError(error.problem, delivered=delivered) from None
        return HubProducer(address, credential=self._credential, proxy=proxy)

    def _discard(self) -> None:
        link = self._link
        self._link = None
        if link is not None:
            link.close()


def _managed_identity() -> TokenCredential:
    try:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415  # an optional extra
    except ImportError:
        raise SinkError(
            "namespace: a managed identity needs a package that is not installed",
            remedy="run pip install 'scheduled-events-bridge[azure-identity]'",
        ) from None
    return DefaultAzureCredential()
