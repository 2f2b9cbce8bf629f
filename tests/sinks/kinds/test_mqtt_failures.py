"""The MQTT sink against brokers that answer badly, late, or not at all."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.mqtt.mqtt_stub import (
    DISCONNECT,
    DISCONNECT_WITH,
    HANG_UP,
    SILENCE,
    MqttStub,
    connack,
    packet,
)

from sinks.base import SinkError, SinkRejected
from sinks.kinds.mqtt import MqttSink
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.testing import sample_context, sample_record

RECORDS = [sample_record(n) for n in range(1, 31)]
DESCRIPTORS = Path("/proc/self/fd")
PASSWORD = "hunter2-in-a-test"


class ImpatientSink(MqttSink):
    CONNECT_TIMEOUT: ClassVar[float] = 1.0
    ACK_TIMEOUT: ClassVar[float] = 1.0
    STATUS_TIMEOUT: ClassVar[float] = 1.0
    CLOSE_TIMEOUT: ClassVar[float] = 0.2


def impatient(host: str, port: int, **settings: Any) -> ImpatientSink:
    """A sink whose time limits are one second."""
    made = MqttSettings(kind="mqtt", host=host, port=port, **settings)
    return ImpatientSink("ops", made, sample_context())


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where TCP connects and nothing ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def opening_fails(sink: MqttSink) -> str:
    """Return the message of the `SinkError` that opening raises."""
    with pytest.raises(SinkError) as caught:
        sink.open()
    sink.close()
    return str(caught.value)


def network_threads() -> list[threading.Thread]:
    """Return the threads that serve a connection."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("mqtt ")]


@pytest.mark.parametrize("settings", [{"protocol": "5"}, {"protocol": "3.1.1"}, {"tls": {}}])
def test_a_server_that_never_answers_ends_the_open_at_its_deadline(
    silent_port: int, settings: dict[str, Any]
) -> None:
    """`open` ends after the connect timeout if the server accepts TCP and never answers."""
    sink = impatient("127.0.0.1", silent_port, **settings)
    started = time.monotonic()
    assert f"127.0.0.1:{silent_port}: no " in opening_fails(sink)
    assert time.monotonic() - started < 12


def test_a_name_that_cannot_be_resolved_says_so() -> None:
    """The error about a HOST that cannot be resolved says so."""
    # RFC 2606 keeps .invalid from ever resolving.
    sink = MqttSink("ops", MqttSettings(kind="mqtt", host="no.invalid"), sample_context())
    assert "check HOST" in opening_fails(sink)


def test_a_server_of_another_protocol_is_an_error() -> None:
    """An answer that is not MQTT raises a `SinkError` and leaves no thread."""
    with MqttStub(
        greeting=b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n" + b"X: y\r\n" * 20
    ) as stub:
        message = opening_fails(impatient(stub.host, stub.port))
    assert "check PORT and PROTOCOL" in message
    assert not network_threads()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0x84, "set PROTOCOL to 3.1.1"),
        (0x86, "check USERNAME and PASSWORD"),
        (0x87, "not authorized"),
        (0x89, "the broker is busy"),
        (0x9F, "too many connections"),
        (0x83, "its log should say"),
        (0xEE, ""),  # no specification has it
    ],
)
def test_a_refused_connection_says_why(code: int, words: str) -> None:
    """The error about a refused connection has the reason code in words and as a number, and no
    password.
    """
    with MqttStub(greeting=connack(code)) as stub:
        sink = impatient(stub.host, stub.port, username="bridge", password=PASSWORD)
        message = opening_fails(sink)
    assert words in message
    assert not words or f"(0x{code:02X})" in message
    assert PASSWORD not in message


@pytest.mark.parametrize(
    ("properties", "words"),
    [(b"\x24\x00", "allow QoS 1"), (b"\x25\x00", "no retained messages")],
)
def test_a_broker_without_a_required_feature_is_refused(properties: bytes, words: str) -> None:
    """A broker without QoS 1 or retained messages is an error in `open` and in `check`."""
    with MqttStub(greeting=connack(properties=properties)) as stub:
        sink = impatient(stub.host, stub.port)
        assert words in opening_fails(sink)
        assert [line.level for line in sink.check()] == ["fail"]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        *((code, SinkError, f"/event: .*0x{code:02X}") for code in (0x80, 0x83, 0x87, 0x97)),
        *((code, SinkRejected, f"0x{code:02X}") for code in (0x90, 0x99)),
        (SILENCE, SinkError, "has not acknowledged"),
        (HANG_UP, SinkError, "connection was lost"),
    ],
)
def test_a_refused_record(answer: int, error: type[Exception], words: str) -> None:
    """The error counts the records that were acknowledged before. A refusal that always comes again
    rejects the record, any other does not; only the window of 20 was sent with it and after it.
    """
    with MqttStub(answer=lambda n, _: answer if n == 4 else 0) as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        with pytest.raises((SinkError, SinkRejected), match=words) as caught:
            sink.deliver(RECORDS)
        if answer == SILENCE:
            with pytest.raises(SinkError):
                sink.maintain()
        sink.close()
        assert stub.published <= 1 + 3 + 20 + 1  # with the status at the beginning and the end
    assert (type(caught.value), caught.value.delivered) == (error, 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("refusal", [0x95, DISCONNECT_WITH + 0x95])
def test_a_refusal_that_ends_the_connection_rejects_the_right_record(refusal: int) -> None:
    """A PUBACK or DISCONNECT with 0x95 rejects only the record that caused it, which is then sent
    alone.
    """
    large = RECORDS[4].body
    left = RECORDS
    with MqttStub(answer=lambda _, payload: refusal if payload == large else 0) as stub:
        sink = impatient(stub.host, stub.port)
        for most_in_flight in (20, 1, 1):
            sink.open()
            stub.most_in_flight = 0
            with pytest.raises(SinkRejected, match=r"message_size_limit|0x95") as caught:
                sink.deliver(left)
            left = left[caught.value.delivered :]
            assert caught.value.tries == 5
            assert large == left[0].body
            assert most_in_flight >= stub.most_in_flight
            sink.close()
        sink.open()
        sink.deliver(left[1:])
        sink.close()


@pytest.mark.parametrize("code", [0x87, 0x97, 0x99])
def test_order_is_kept_after_a_refusal_until_a_batch_has_passed(code: int) -> None:
    """After a refusal, records are sent one at a time until a batch has succeeded, so that no
    record overtakes the refused one.
    """
    published: list[bytes] = []
    refusals = 3

    def answer(_: int, payload: bytes) -> int:
        nonlocal refusals
        published.append(payload)
        refuse = payload == RECORDS[4].body and refusals > 0
        refusals -= refuse
        return code if refuse else 0

    with MqttStub(answer=answer) as stub:
        sink = impatient(stub.host, stub.port)
        left, seen = RECORDS, []
        while left:
            sink.open()
            published.clear()
            try:
                sink.deliver(left)
            except (SinkError, SinkRejected) as error:
                seen.append(list(published))
                left = left[error.delivered :]
            else:
                seen.append(list(published))
                break
            sink.close()
        stub.most_in_flight = 0
        stub.together = 10
        sink.deliver(RECORDS)
        assert stub.most_in_flight > 1
        sink.close()
    bodies = [record.body for record in RECORDS]
    assert seen == [bodies[:20], [bodies[4]], [bodies[4]], bodies[4:]]


def test_a_refused_state_is_a_sink_error() -> None:
    """A refused state or status raises a `SinkError` and makes no dead record. Records that the
    broker accepts do not wait for the sink's next try.

    Records, which the same broker takes, do not wait a minute for the sink's next try.
    """
    with MqttStub(answer=lambda n, _: 0x99 if n == 1 else 0) as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        with pytest.raises(SinkError, match=r"/state: .*0x99") as caught:
            sink.maintain()
        sink.close()
    assert caught.value.retry_after == 5.0


@pytest.mark.parametrize("together", [1, 5, 20])
def test_a_batch_arrives_in_order_however_the_broker_answers(together: int) -> None:
    """A batch arrives in order and without duplicates, with 20 in flight, whether the broker
    acknowledges one by one or a window at once.
    """
    batch = [sample_record(n) for n in range(1, MqttSink.BATCH + 1)]
    came: list[bytes] = []

    def answer(_: int, payload: bytes) -> int:
        came.append(payload)
        return 0

    with MqttStub(answer=answer, together=together) as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        for _ in range(10):
            came.clear()
            sink.deliver(batch)
            assert came == [record.body for record in batch]
        assert stub.most_in_flight <= 20
        stub.together = 1
        sink.close()


def test_what_is_unanswered_at_a_refusal_ends_the_connection() -> None:
    """After a refusal with unanswered messages the sink closes the connection, so that a late
    acknowledgement is not taken for another record's.
    """
    with MqttStub(answer=lambda n, _: (0, 0x99)[n] if n < 2 else SILENCE) as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        with pytest.raises(SinkRejected, match="0x99"):
            sink.deliver(RECORDS)
        with pytest.raises(SinkError, match="was cut"):
            sink.maintain()
        sink.close()


def test_the_receive_maximum_is_kept() -> None:
    """The sink never has more messages in flight than the broker allows."""
    with MqttStub(greeting=connack(properties=b"\x21\x00\x03"), together=3) as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        sink.deliver(RECORDS)
        assert stub.most_in_flight == 3
        assert 1 + len(RECORDS) == stub.published


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (packet(DISCONNECT, b"\x8e\x00"), "same client id"),
        (packet(DISCONNECT, b"\x8b\x00"), "shutting down"),
        (packet(DISCONNECT, b"\x98\x00"), "administrator"),
        (packet(0x90, b"\xff"), "0x82"),
    ],
)
def test_a_disconnect_says_why(sent: bytes, words: str) -> None:
    """The next call raises the reason code of the broker's DISCONNECT, or says that its data was
    not valid.
    """
    with MqttStub() as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        stub.send(sent)
        for thread in network_threads():
            thread.join(5)
        with pytest.raises(SinkError, match=words):
            sink.maintain()
        sink.close()
    assert not network_threads()


def test_closing_is_bounded_where_the_broker_is_silent() -> None:
    """`close` ends in time if the broker does not acknowledge the status offline."""
    with MqttStub(answer=lambda n, _: SILENCE if n else 0) as stub:
        sink = impatient(stub.host, stub.port)
        sink.open()
        started = time.monotonic()
        sink.close()
        assert time.monotonic() - started < 8


@pytest.mark.parametrize("opened", [True, False])
def test_abort_frees_a_call_at_once(silent_port: int, opened: bool) -> None:
    """`abort` ends a delivery or an `open` that waits, long before its own deadline."""
    with MqttStub(answer=lambda n, _: SILENCE if n else 0) as stub:
        port = stub.port if opened else silent_port
        settings = MqttSettings(kind="mqtt", host=stub.host, port=port)
        sink = MqttSink("ops", settings, sample_context())
        if opened:
            sink.open()
        cut = threading.Timer(0.1, sink.abort)
        cut.start()
        started = time.monotonic()
        with pytest.raises(SinkError, match="was cut"):
            sink.deliver(RECORDS) if opened else sink.open()
        limit = MqttSink.ACK_TIMEOUT if opened else MqttSink.CONNECT_TIMEOUT
        assert time.monotonic() - started < limit / 3
        cut.join()
        sink.close()


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="counts descriptors in /proc")
def test_connections_leave_nothing_behind() -> None:
    """A broker that refuses every connection does not use up file descriptors or threads."""
    with MqttStub(greeting=connack(0x87)) as stub:
        sink = impatient(stub.host, stub.port)
        opening_fails(sink)
        before = len(list(DESCRIPTORS.iterdir()))
        for _ in range(20):
            # Not opening_fails: what pytest keeps of an exception holds on to its frames.
            with suppress(SinkError):
                sink.open()
        assert len(list(DESCRIPTORS.iterdir())) <= before + 2


def test_delivering_before_open_is_a_sink_error() -> None:
    """`deliver` of a sink that is not open raises `SinkError`."""
    sink = impatient("127.0.0.1", 1)
    with pytest.raises(SinkError, match="not open"):
        sink.deliver(RECORDS)
