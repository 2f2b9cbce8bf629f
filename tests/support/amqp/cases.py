"""What the tests of the Event Hubs sink share: a hub, sinks for it, and a consumer."""

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from azure.eventhub import EventData, EventHubConsumerClient, PartitionContext
from support.amqp.message import HubMessage
from support.amqp.server import EventHubServer

from sinks.kinds.eventhub import EventHubSink
from sinks.kinds.eventhub.settings import EventHubSettings
from sinks.testing import sample_context, sample_record
from wire.record import Record

HUB = "scheduled-events"
ENDS_WITHIN = 5.0


def sink_for(server: EventHubServer, **settings: Any) -> EventHubSink:
    """A sink for the server's hub, not yet open."""
    given = settings or {"connection_string": server.connection_string(HUB)}
    return EventHubSink("hub", EventHubSettings(kind="eventhub", **given), sample_context())


def bodies(messages: Sequence[HubMessage]) -> list[bytes]:
    """What the hub's consumers would read, one by one."""
    return [message.body for message in messages]


def records(count: int) -> list[Record]:
    """So many records, in order."""
    return [sample_record(number) for number in range(1, count + 1)]


def everything_about(error: BaseException) -> str:
    """What a log could show of an error and of its causes."""
    told = [str(error), repr(error)]
    cause = error.__cause__
    if cause is not None:
        told.append(everything_about(cause))
    return " ".join(told)


def consume(server: EventHubServer, *, count: int) -> list[tuple[str, EventData]]:
    """So many events with their partitions, as the SDK's consumer reads them."""
    got: list[tuple[str, EventData]] = []
    enough = threading.Event()

    def on_event(context: PartitionContext, event: EventData | None) -> None:
        if event is None:
            return
        got.append((context.partition_id, event))
        if len(got) >= count:
            enough.set()

    client = EventHubConsumerClient.from_connection_string(
        server.connection_string(HUB), "$default", retry_total=0, load_balancing_interval=0.2
    )
    thread = threading.Thread(
        target=lambda: client.receive(on_event, starting_position="-1"), daemon=True
    )
    thread.start()
    try:
        assert enough.wait(20)
    finally:
        client.close()
        thread.join(10)
    return got


def body_of(event: EventData) -> bytes:
    """The body of an event, whose sections the SDK yields one by one."""
    return b"".join(cast("Iterable[bytes]", event.body))


def abandoned(server: EventHubServer, sink: EventHubSink, call: Callable[[], None]) -> Any:
    """What a call raises that was abandoned once the fault had struck; it must end soon."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert server.misbehaved.wait(10)
    begun = time.monotonic()
    sink.abort()
    assert time.monotonic() - begun < 3
    thread.join(ENDS_WITHIN)
    assert not thread.is_alive()
    return raised[0]


def forget_stuck_threads() -> None:
    """Wait for the threads of `check` to end, and for the sockets that the SDK leaves behind."""
    for thread in threading.enumerate():
        if thread.name == "eventhub-bounded":
            thread.join(ENDS_WITHIN)
            assert not thread.is_alive()
    with warnings.catch_warnings():
        # The SDK does not close a socket whose peer was first to go; it must not be blamed on
        # whichever test runs when the collector finds it.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
