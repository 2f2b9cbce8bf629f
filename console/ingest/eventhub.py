"""Records from an Event Hub: the SDK's consumer, in an event loop on its own thread.

A batch is passed on as a whole, and the next one is not read before its commit, so the hub is never
read faster than the database can write.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from azure.eventhub import EventData, TransportType
from azure.eventhub.aio import EventHubConsumerClient, PartitionContext

from console.db.connection.opening import Database
from console.db.sources.checkpoints import RENEWAL_SECONDS, Checkpoint
from console.ingest.checkpoints import Checkpoints
from console.ingest.settings import EventHubSource
from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.ingest.state import SourceState
from console.ingest.writer import Writer
from console.records.incoming import IncomingMessage, IncomingRecord
from console.records.parse import ForeignError, parse_record
from sinks.base import SinkError
from sinks.kinds.eventhub.errors import diagnose
from sinks.kinds.eventhub.tls import TlsSockets

_LOG: Final = logging.getLogger("console")
_BATCH: Final = 300
_CLAIM_SECONDS: Final = 10.0
"""After this time without a renewal, another console takes the partition."""
_MAX_WAIT_SECONDS: Final = 30.0
_NEXT_ADDRESS_SECONDS: Final = 0.25


class HubLoop(asyncio.SelectorEventLoop):
    """Tries the next address of a host while earlier ones are still pending, so that a dead address
    costs a quarter of a second, and not the two minutes of the system.
    """

    async def create_connection(self, *args: Any, **more: Any) -> Any:
        """Connect; the SDK leaves the delay to the loop, whose own is endless."""
        more.setdefault("happy_eyeballs_delay", _NEXT_ADDRESS_SECONDS)
        return await super().create_connection(*args, **more)


class EventHubReader:
    """Reads the partitions that this console has claimed, on one thread."""

    def __init__(
        self,
        settings: EventHubSource,
        *,
        state: SourceState,
        writer: Writer,
        database: Database,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.publisher = None
        """A hub has no way back to VMs."""
        self._settings = settings
        self._state = state
        self._writer = writer
        self._checkpoints = Checkpoints(database, state.name)
        self._now = now
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"hub {state.name}", daemon=True)

    def start(self) -> None:
        """Start the thread that reads; the database with the checkpoints is open."""
        self._state.note_disconnected("not connected yet")
        self._thread.start()

    def read_again(self) -> None:
        """Read from the stored checkpoints again: they may be those of an earlier copy."""
        self._cancel()

    def ask_about(self, vm_ids: Collection[str]) -> None:
        """Do nothing: a hub keeps only records, and sends all of them."""

    def stop(self) -> None:
        """Stop, and release the partitions."""
        self._stop.set()
        self._cancel()
        if self._thread.is_alive():
            self._thread.join(5)

    def _cancel(self) -> None:
        loop = self._loop
        task = self._task
        if loop is not None and task is not None and loop.is_running():
            loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        while not self._writer.opened.wait(0.2):
            if self._stop.is_set():
                return
        wait = 0.5
        while not self._stop.is_set():
            try:
                with asyncio.Runner(loop_factory=HubLoop) as runner:
                    runner.run(self._serve())
            except Exception as error:  # noqa: BLE001  # a thread that ends would end the connection for good
                self._trouble(error)
            self._stop.wait(random.uniform(wait / 2, wait))  # noqa: S311  # jitter
            wait = 0.5 if self._state.is_connected else min(_MAX_WAIT_SECONDS, wait * 2)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._stop.is_set():
            return
        client = self._client()
        try:
            await client.receive_batch(
                self._on_batch,
                max_batch_size=_BATCH,
                max_wait_time=5,
                starting_position="-1",
                on_error=self._on_error,
                on_partition_initialize=self._on_partition,
            )
        except asyncio.CancelledError:
            pass
        finally:
            await asyncio.wait_for(client.close(), 3)

    def _client(self) -> EventHubConsumerClient:
        address = self._settings.address()
        common: dict[str, Any] = {
            "consumer_group": self._settings.consumer_group,
            "checkpoint_store": self._checkpoints,
            "load_balancing_interval": RENEWAL_SECONDS,
            "partition_ownership_expiration_interval": _CLAIM_SECONDS,
            "transport_type": TransportType.Amqp,
            "retry_total": 1,
            "ssl_context": None if address.emulator else TlsSockets.trusting_the_system(),
        }
        if self._settings.namespace is None:
            return EventHubConsumerClient.from_connection_string(
                address.connection_string(), **common
            )
        return EventHubConsumerClient(
            fully_qualified_namespace=address.host,
            eventhub_name=address.hub,
            credential=_managed_identity(),
            **common,
        )

    async def _on_partition(self, context: PartitionContext) -> None:
        if not self._state.is_connected:
            self._state.note_connected(self._now())
            fields = {"action": "source_connected", "source": self._state.name}
            _LOG.info("reading partition %s", context.partition_id, extra=fields)

    async def _on_error(self, _context: PartitionContext | None, error: Exception) -> None:
        self._trouble(error)

    def _trouble(self, error: BaseException) -> None:
        if self._stop.is_set():
            return
        trouble = str(error) if isinstance(error, SinkError) else diagnose(error).text("hub")
        if self._state.trouble != trouble:
            fields = {"action": "source_lost", "source": self._state.name}
            _LOG.warning("%s", trouble, extra=fields)
        self._state.note_disconnected(trouble)

    async def _on_batch(self, context: PartitionContext, events: list[EventData]) -> None:
        if not self._state.is_connected:
            self._state.note_connected(self._now())
        if not events:
            return
        last = events[-1]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()

        def on_end(stored: bool) -> None:  # noqa: FBT001  # as SourceBatch.on_end
            loop.call_soon_threadsafe(_settle, answer, stored)

        items = [self._item(event) for event in events]
        delivery = SourceBatch(
            source=self._state.name,
            items=items,
            on_end=on_end,
            size=sum(len(each.body) for each in items if isinstance(each, IncomingRecord)),
            checkpoint=Checkpoint(
                hub=f"{context.fully_qualified_namespace}/{context.eventhub_name}",
                consumer_group=context.consumer_group,
                partition=context.partition_id,
                offset=str(last.offset),
                sequence_number=int(last.sequence_number or 0),
            ),
        )
        while True:
            try:
                self._writer.put(delivery, timeout=0)
                break
            except queue.Full:
                await asyncio.sleep(0.05)
        if not await answer:
            raise asyncio.CancelledError  # the console stops: the batch is read again later

    def _item(self, event: EventData) -> IncomingMessage | QuarantinedMessage:
        now = self._now()
        enqueued = event.enqueued_time
        sent_at = now if enqueued is None else min(now, enqueued.timestamp())
        self._state.lag = now - sent_at
        body = b""
        try:
            body = _body(event)
            return parse_record(body, source=self._state.name, received_at=now, sent_at=sent_at)
        except ForeignError as error:
            return QuarantinedMessage(
                reason=error.reason, message=str(error), sample=body[:2000], at=now
            )


def _settle(answer: asyncio.Future[bool], stored: bool) -> None:  # noqa: FBT001
    if not answer.done():
        answer.set_result(stored)


def _body(event: EventData) -> bytes:
    """Return the bytes of a message. Raises `ForeignError` if it has no plain bytes."""
    body = event.body
    if isinstance(body, bytes):
        return body
    try:
        return b"".join(body)  # type: ignore[arg-type]
    except TypeError:
        raise ForeignError("not_json", "the message's body is not bytes") from None


def _managed_identity() -> Any:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  # an optional extra
    except ImportError:
        raise SinkError(
            "namespace: a managed identity needs a package that is not installed",
            remedy="run pip install 'scheduled-events-bridge[azure-identity]' aiohttp",
        ) from None
    return DefaultAzureCredential()
