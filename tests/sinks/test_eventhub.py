from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from amqp_message import HubMessage
from amqp_server import SHARED_KEY, EventHubServer, Fault
from azure.eventhub import EventData, EventHubConsumerClient, PartitionContext

from sinks.base import Sink, SinkError, SinkRejected
from sinks.eventhub import EventHubSink
from sinks.eventhub_settings import EventHubSettings
from sinks.record import EventRecord
from sinks.registry import load
from sinks.testing import (
    SAMPLE_VM,
    SinkContract,
    sample_context,
    sample_heartbeat,
    sample_record,
)

HUB = "scheduled-events"
ENDS_WITHIN = 5.0


class HubDestination:
    def __init__(self, server: EventHubServer) -> None:
        self._server = server

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"connection_string": self._server.connection_string(HUB)}

    @property
    def secrets(self) -> Sequence[str]:
        return [SHARED_KEY]

    def received(self) -> Sequence[bytes]:
        return [message.body for message in self._server.messages(HUB)]

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()


@pytest.fixture
def server() -> Iterator[EventHubServer]:
    """A hub that runs, and that made no mistake of its own by the end."""
    with EventHubServer() as made:
        yield made
    assert made.bugs == []


def make(server: EventHubServer, **settings: Any) -> EventHubSink:
    """A sink for the server's hub, not yet open."""
    given = settings or {"connection_string": server.connection_string(HUB)}
    return EventHubSink("hub", EventHubSettings(kind="eventhub", **given), sample_context())


@pytest.fixture
def sink(server: EventHubServer) -> Iterator[EventHubSink]:
    """A sink that is open."""
    made = make(server)
    made.open()
    yield made
    made.close()


def bodies(messages: Sequence[HubMessage]) -> list[bytes]:
    """What the hub's consumers would read, one by one."""
    return [message.body for message in messages]


def records(count: int) -> list[EventRecord]:
    """So many records, in order."""
    return [sample_record(number) for number in range(1, count + 1)]


class TestContract(SinkContract):
    sink_class = EventHubSink

    @pytest.fixture
    def destination(self, server: EventHubServer) -> HubDestination:
        return HubDestination(server)


def test_the_registry_knows_it() -> None:
    """The kind `eventhub` is this class."""
    assert load("eventhub") is EventHubSink


# What arrives.


def test_the_message_carries_the_record(server: EventHubServer, sink: EventHubSink) -> None:
    """Id, event id, content type and partition key stand where AMQP consumers look for them."""
    record = sample_record()
    sink.deliver([record])
    (message,) = server.messages(HUB)
    expected = (record.body, record.id, record.event_id, "application/cloudevents+json")
    assert expected == (
        message.body,
        message.message_id,
        message.correlation_id,
        message.content_type,
    )
    assert message.partition_key == SAMPLE_VM.vm_id


def test_the_attributes_are_application_properties(
    server: EventHubServer, sink: EventHubSink
) -> None:
    """Every CloudEvents attribute is a property to route by, named as the AMQP binding says."""
    record = sample_record(3)
    sink.deliver([record])
    assert {
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": record.id,
        "cloudEvents_source": record.source,
        "cloudEvents_type": "seb.event.scheduled.v1",
        "cloudEvents_subject": record.subject,
        "cloudEvents_time": record.time,
        "cloudEvents_datacontenttype": "application/json",
        "cloudEvents_dataschema": "urn:scheduled-events-bridge:record:v1",
        "cloudEvents_sequence": "00000000000000000003",
        "cloudEvents_stream": record.stream,
        "cloudEvents_partitionkey": SAMPLE_VM.vm_id,
    } == server.messages(HUB)[0].application_properties


def test_a_record_without_an_event_has_no_correlation(
    server: EventHubServer, sink: EventHubSink
) -> None:
    """A heartbeat is about no event, so its correlation id is absent."""
    sink.deliver([sample_heartbeat()])
    assert server.messages(HUB)[0].correlation_id is None


def test_the_partition_key_is_constant(server: EventHubServer, sink: EventHubSink) -> None:
    """Every record of a VM goes to one partition, so consumers see them in order."""
    sink.deliver(records(20))
    sink.deliver([sample_heartbeat(21)])
    assert {SAMPLE_VM.vm_id} == {message.partition_key for message in server.messages(HUB)}


def test_the_sdk_reads_back_what_was_sent(server: EventHubServer, sink: EventHubSink) -> None:
    """The SDK's own consumer gets the same bytes in the same order, from one partition."""
    sent = records(25)
    sink.deliver(sent)
    got = consume(server, count=25)
    assert [record.body for record in sent] == [body_of(event) for _, event in got]
    assert [record.id for record in sent] == [event.message_id for _, event in got]
    assert len({partition for partition, _ in got}) == 1


def test_a_consumer_at_the_end_sees_what_comes(server: EventHubServer, sink: EventHubSink) -> None:
    """A consumer that starts at the latest event gets the next one and none before."""
    old, new = records(2)
    sink.deliver([old])
    got = consume(server, count=1, position="@latest", then=lambda: sink.deliver([new]))
    assert [new.id] == [event.message_id for _, event in got]


def consume(
    server: EventHubServer,
    *,
    count: int,
    position: str = "-1",
    then: Callable[[], None] | None = None,
) -> list[tuple[str, EventData]]:
    """Events with their partitions, as the SDK's consumer reads them; `then` runs once it does."""
    got: list[tuple[str, EventData]] = []
    enough = threading.Event()

    def on_event(context: PartitionContext, event: EventData | None) -> None:
        if event is None:
            return
        got.append((context.partition_id, event))
        if len(got) >= count:
            enough.set()

    client = EventHubConsumerClient.from_connection_string(
        server.connection_string(HUB), "$default", retry_total=0
    )
    thread = threading.Thread(
        target=lambda: client.receive(on_event, starting_position=position), daemon=True
    )
    thread.start()
    try:
        if then is not None:
            assert server.wait_for_consumers(HUB, server.partitions)
            then()
        assert enough.wait(20)
    finally:
        client.close()
        thread.join(10)
    return got


def body_of(event: EventData) -> bytes:
    """The body of an event, whose sections the SDK yields one by one."""
    return b"".join(cast("Iterable[bytes]", event.body))


# Batches.


def test_a_batch_that_is_too_large_is_split_in_order() -> None:
    """Where the hub's limit is below the batch, several messages go out, and order stays."""
    sent = records(30)
    with EventHubServer(max_message_size=4 * len(sent[0].body)) as server:
        sink = make(server)
        sink.open()
        sink.deliver(sent)
        sink.close()
        assert [record.body for record in sent] == bodies(server.messages(HUB))


def test_a_limit_below_the_announced_one_is_found() -> None:
    """Where the hub takes less than it announced, batches are halved until they fit."""
    sent = records(10)
    limit = 4 * len(sent[0].body)
    with EventHubServer(max_message_size=limit, announced_size=1024 * 1024) as server:
        sink = make(server)
        sink.open()
        sink.deliver(sent)
        sink.close()
        assert [record.body for record in sent] == bodies(server.messages(HUB))


@pytest.mark.parametrize("announced", [None, 1024 * 1024])
def test_a_record_that_is_too_large_is_rejected(announced: int | None) -> None:
    """A record above the hub's limit is refused for good, and those before it are counted."""
    small, large = sample_record(1), sample_record(2, description="x" * 20_000)
    with EventHubServer(max_message_size=10_000, announced_size=announced) as server:
        sink = make(server)
        sink.open()
        with pytest.raises(SinkRejected, match="larger than") as caught:
            sink.deliver([small, large, sample_record(3)])
        sink.close()
        assert [small.body] == bodies(server.messages(HUB))
    assert (caught.value.delivered, caught.value.tries) == (1, 1)


def test_records_of_two_vms_keep_their_keys(server: EventHubServer, sink: EventHubSink) -> None:
    """A clone has a new vmId in the middle of a backlog: each record keeps its own key."""
    clone = type(SAMPLE_VM)(vm_id="11111111-2222-3333-4444-555555555555", name="db-1")
    sent = [sample_record(1), sample_record(2, vm=clone), sample_record(3)]
    sink.deliver(sent)
    assert [record.partition_key for record in sent] == [
        message.partition_key for message in server.messages(HUB)
    ]


def test_what_was_acknowledged_before_a_failure_is_counted() -> None:
    """After a partial failure `delivered` says where to go on."""
    sent = records(6)
    with EventHubServer(max_message_size=4 * len(sent[0].body)) as server:
        sink = make(server)
        sink.open()
        server.misbehave(Fault.REJECT, condition="com.microsoft:server-busy", after=1)
        with pytest.raises(SinkError) as caught:
            sink.deliver(sent)
        sink.close()
        assert caught.value.delivered == len(server.messages(HUB)) > 0


# Misbehaviour.


@pytest.mark.parametrize("fault", [Fault.REJECT, Fault.DETACH, Fault.CLOSE])
@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("com.microsoft:server-busy", "throttling"),
        ("amqp:resource-limit-exceeded", "quota"),
        ("com.microsoft:entity-disabled", "disabled"),
        ("amqp:unauthorized-access", "refused"),
        ("amqp:not-found", "does not exist"),
        ("amqp:internal-error", "answered with an error"),
    ],
)
def test_an_error_is_named(
    server: EventHubServer, sink: EventHubSink, fault: Fault, condition: str, words: str
) -> None:
    """An error is told with its condition and a remedy, and never in the hub's own words."""
    server.misbehave(fault, condition=condition, description=f"sig={SHARED_KEY}")
    with pytest.raises(SinkError, match=words) as caught:
        sink.deliver([sample_record()])
    assert condition in str(caught.value)
    assert SHARED_KEY not in everything_about(caught.value)


def everything_about(error: BaseException) -> str:
    """What a log could show of an error and of its causes."""
    told = [str(error), repr(error)]
    cause = error.__cause__
    if cause is not None:
        told.append(everything_about(cause))
    return " ".join(told)


@pytest.mark.parametrize("fault", [Fault.REJECT, Fault.DETACH])
def test_a_busy_hub_is_given_time(server: EventHubServer, sink: EventHubSink, fault: Fault) -> None:
    """Where the hub throttles, the next try is four seconds away."""
    server.misbehave(fault, condition="com.microsoft:server-busy")
    with pytest.raises(SinkError) as caught:
        sink.deliver([sample_record()])
    assert caught.value.retry_after == 4.0


def test_a_malformed_record_is_found_in_its_batch(
    server: EventHubServer, sink: EventHubSink
) -> None:
    """A condition that is the record's own fault is a rejection, after five tries."""
    server.misbehave(Fault.REJECT, condition="com.microsoft:argument-error")
    with pytest.raises(SinkRejected) as caught:
        sink.deliver(records(3))
    assert (caught.value.delivered, caught.value.tries) == (0, 5)


def test_a_rejection_keeps_the_link(server: EventHubServer, sink: EventHubSink) -> None:
    """A throttled namespace is not also burdened with new connections."""
    server.misbehave(Fault.REJECT, condition="com.microsoft:server-busy", times=1)
    with pytest.raises(SinkError):
        sink.deliver([sample_record()])
    sink.deliver([sample_record()])
    assert server.accepted == 1


@pytest.mark.parametrize("fault", [Fault.DETACH, Fault.CLOSE, Fault.DROP])
def test_a_link_that_ends_once_is_opened_again(
    server: EventHubServer, sink: EventHubSink, fault: Fault
) -> None:
    """A link that the hub ended for no fault of ours costs no error."""
    server.misbehave(fault, condition="amqp:link:detach-forced", times=1)
    sink.deliver([sample_record()])
    assert [sample_record().body] == bodies(server.messages(HUB))


def test_a_link_that_always_ends_is_an_error(server: EventHubServer, sink: EventHubSink) -> None:
    """A hub that ends every link is not tried a third time."""
    server.misbehave(Fault.DETACH, condition="amqp:link:detach-forced")
    with pytest.raises(SinkError, match="detach-forced"):
        sink.deliver([sample_record()])
    assert server.accepted == 2


def test_an_idle_detach_costs_nothing(server: EventHubServer, sink: EventHubSink) -> None:
    """After the hub detached an idle link, the next record goes through at once."""
    first, second = records(2)
    sink.deliver([first])
    server.detach_all()
    sink.deliver([second])
    assert [first.body, second.body] == bodies(server.messages(HUB))


def test_an_idle_sink_finds_the_detach_itself(
    server: EventHubServer, sink: EventHubSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`maintain` reads what came in while idle, and has a new link before the next record."""
    monkeypatch.setattr("sinks.eventhub.PUMP_SECONDS", 0.0)
    server.detach_all()
    for _ in range(3):
        sink.maintain()
    assert server.accepted == 2
    sink.deliver([sample_record()])
    assert server.accepted == 2


def test_maintain_is_rare(server: EventHubServer, sink: EventHubSink) -> None:
    """Right after a delivery nothing is read, so that `maintain` costs no time."""
    sink.deliver([sample_record()])
    begun = time.monotonic()
    for _ in range(100):
        sink.maintain()
    assert time.monotonic() - begun < 0.1


@pytest.mark.parametrize(("fault", "stored"), [(Fault.NO_ACK, 0), (Fault.LOST_ACK, 1)])
def test_a_missing_acknowledgement_is_an_error(
    server: EventHubServer,
    sink: EventHubSink,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    stored: int,
) -> None:
    """A send without an answer ends in time, and is not repeated behind the dispatcher's back."""
    monkeypatch.setattr("sinks.eventhub.SEND_SECONDS", 0.5)
    server.misbehave(fault)
    with pytest.raises(SinkError, match="no answer in time"):
        sink.deliver([sample_record()])
    assert stored == len(server.messages(HUB))
    server.heal()
    sink.deliver([sample_record()])
    assert {sample_record().body} == set(bodies(server.messages(HUB)))


@pytest.mark.parametrize(("status", "words"), [(401, "access was refused"), (404, "not exist")])
def test_a_refused_token_is_an_error(server: EventHubServer, status: int, words: str) -> None:
    """A token that the hub refuses is told as such, with what to check."""
    server.misbehave(Fault.CBS_STATUS, status=status)
    with pytest.raises(SinkError, match=words) as caught:
        make(server).open()
    assert f"status {status}" in str(caught.value)
    assert SHARED_KEY not in everything_about(caught.value)


@pytest.mark.parametrize("fault", [Fault.REFUSE_ATTACH, Fault.DETACH_AT_ONCE])
def test_a_hub_that_is_missing_is_an_error(server: EventHubServer, fault: Fault) -> None:
    """A hub that cannot be attached to is named in the error, already by `open`."""
    server.misbehave(fault, condition="amqp:not-found")
    with pytest.raises(SinkError, match=f"hub {HUB} at 127.0.0.1:{server.port}: the hub does not"):
        make(server).open()


# A stuck thread.


STUCK_IN_OPEN = [Fault.SILENT, Fault.NO_CBS, Fault.NO_ATTACH]


@pytest.mark.parametrize("fault", STUCK_IN_OPEN)
def test_an_abandoned_open_ends(server: EventHubServer, fault: Fault) -> None:
    """A thread that waits for a peer which never answers ends soon after `abort`."""
    sink = make(server)
    server.misbehave(fault)
    ended = abandoned(server, sink, sink.open)
    assert isinstance(ended, SinkError)
    assert server.accepted == 1


@pytest.mark.parametrize("fault", [Fault.NO_ACK, Fault.RELEASE])
def test_an_abandoned_delivery_ends(
    server: EventHubServer, sink: EventHubSink, fault: Fault
) -> None:
    """So does one that waits for an acknowledgement."""
    server.misbehave(fault)
    ended = abandoned(server, sink, lambda: sink.deliver([sample_record()]))
    assert isinstance(ended, SinkError)


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
    assert time.monotonic() - begun < 0.5
    thread.join(ENDS_WITHIN)
    assert not thread.is_alive()
    return raised[0]


def test_an_aborted_sink_never_connects_again(server: EventHubServer, sink: EventHubSink) -> None:
    """After `abort` a call that was between two steps fails instead of connecting anew."""
    sink.abort()
    with pytest.raises(SinkError):
        sink.deliver([sample_record()])
    assert server.accepted == 1


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.NO_CBS, Fault.NO_ATTACH])
def test_close_is_bounded(server: EventHubServer, fault: Fault) -> None:
    """Closing after an abandoned call does not wait for the peer."""
    sink = make(server)
    server.misbehave(fault)
    abandoned(server, sink, sink.open)
    begun = time.monotonic()
    sink.close()
    assert time.monotonic() - begun < 5.0


# The connection string's file.


def test_the_file_is_read_at_each_open(server: EventHubServer, tmp_path: Path) -> None:
    """A key that was rotated in the file is used from the next connection on."""
    file = tmp_path / "connection"
    file.write_text(server.connection_string(HUB, key="b2xkIGtleQ=="), encoding="utf-8")
    sink = make(server, connection_string_file=file)
    sink.open()
    sink.close()
    old = server.tokens[-1]
    file.write_text(server.connection_string(HUB, key="bmV3IGtleQ==") + "\n", encoding="utf-8")
    sink.open()
    sink.deliver([sample_record()])
    sink.close()
    assert old != server.tokens[-1]
    assert len(server.messages(HUB)) == 1


def test_a_file_that_becomes_unsafe_is_refused(server: EventHubServer, tmp_path: Path) -> None:
    """A remote host in an emulator string is refused at the next open too, unread by the SDK."""
    file = tmp_path / "connection"
    file.write_text(server.connection_string(HUB), encoding="utf-8")
    sink = make(server, connection_string_file=file)
    unsafe = server.connection_string(HUB).replace("127.0.0.1", "hub.example.com")
    file.write_text(unsafe, encoding="utf-8")
    with pytest.raises(SinkError, match="connection_string_file: UseDevelopmentEmulator") as caught:
        sink.open()
    assert SHARED_KEY not in everything_about(caught.value)


def test_a_file_that_vanishes_is_an_error(server: EventHubServer, tmp_path: Path) -> None:
    """A secret that is gone is told by its path, and the sink recovers when it is back."""
    file = tmp_path / "connection"
    file.write_text(server.connection_string(HUB), encoding="utf-8")
    sink = make(server, connection_string_file=file)
    file.unlink()
    with pytest.raises(SinkError, match="cannot be read"):
        sink.open()
    file.write_text(server.connection_string(HUB), encoding="utf-8")
    sink.open()
    sink.close()


# check


def texts(sink: Sink[Any]) -> list[tuple[str, str]]:
    """The lines of `check`, without their remedies."""
    return [(line.level, line.text) for line in sink.check()]


def test_check_counts_the_partitions(server: EventHubServer) -> None:
    """`check` says that sending is allowed, and how many partitions there are."""
    (_, connected), (_, counted) = texts(make(server))
    assert connected.endswith("connected without TLS, as an emulator on this machine, may send")
    assert counted.endswith("2 partitions")


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


@pytest.mark.parametrize("fault", [Fault.NO_MANAGEMENT, Fault.MANAGEMENT_STATUS])
def test_check_warns_where_only_the_properties_fail(
    server: EventHubServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A key that may send but not look is good enough."""
    monkeypatch.setattr("sinks.eventhub.CHECK_SECONDS", 2.0)
    server.misbehave(fault)
    lines = texts(make(server))
    assert [level for level, _ in lines] == ["ok", "warn"]
    server.stop()
    forget_stuck_threads()


@pytest.mark.parametrize("fault", STUCK_IN_OPEN)
def test_check_never_hangs(
    server: EventHubServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A peer that stops answering is a line that says so, in time, and leaves no thread."""
    monkeypatch.setattr("sinks.eventhub.CHECK_SECONDS", 1.5)
    server.misbehave(fault)
    ((level, text),) = texts(make(server))
    assert (level, "no answer in time" in text) == ("fail", True)
    forget_stuck_threads()


def test_check_names_the_setting_to_correct(server: EventHubServer, tmp_path: Path) -> None:
    """Where the file broke after the start, `check` says which setting it belongs to."""
    file = tmp_path / "connection"
    file.write_text(server.connection_string(HUB), encoding="utf-8")
    sink = make(server, connection_string_file=file)
    file.write_text("nonsense", encoding="utf-8")
    ((level, text),) = texts(sink)
    assert (level, text.split(":")[0]) == ("fail", "connection_string_file")
