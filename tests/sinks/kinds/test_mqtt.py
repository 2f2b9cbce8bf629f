"""The MQTT sink against a real Mosquitto."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.subscriber import SeenMessage
from support.sinks.destination import FarEnd

from sinks.base import SinkContext, SinkError
from sinks.kinds.mqtt import MqttSink
from sinks.samples import sample_event, sample_pending
from sinks.testing import (
    SAMPLE_STREAM,
    SAMPLE_TIME,
    SAMPLE_VM,
    SinkContract,
    sample_context,
    sample_heartbeat,
    sample_record,
)
from wire.record import Record, RecordDraft, seal
from wire.state import PendingEvent

BASE = f"seb/v1/default/vm/{SAMPLE_VM.vm_id}"
PASSWORD = "correct horse battery staple"


def sealed(record_type: str, data: Mapping[str, Any]) -> Record:
    """The first record of a stream."""
    draft = RecordDraft(
        type=record_type,
        source=SAMPLE_VM.source,
        subject="one",
        time=SAMPLE_TIME,
        partition_key=SAMPLE_VM.vm_id,
        data=data,
    )
    return seal(draft, sequence=1, stream=SAMPLE_STREAM)


RECEIPT = sealed(
    "seb.approval.v1",
    {"vm": SAMPLE_VM.to_wire(), "jti": "one-of-a-kind", "state": "accepted"},
)


@contextmanager
def its_connection_ends() -> Iterator[None]:
    """Wait until the present connections have ended."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("mqtt ")]
    yield
    for thread in threads:
        thread.join(5)


class TestContract(SinkContract):
    sink_class = MqttSink

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Iterator[FarEnd]:
        with (
            Mosquitto(tmp_path / "broker", users={"bridge": PASSWORD}) as broker,
            broker.subscriber("seb/#") as subscriber,
        ):
            yield FarEnd(
                settings={
                    "host": broker.host,
                    "port": str(broker.port),
                    "username": "bridge",
                    "password": PASSWORD,
                },
                secrets=[PASSWORD],
                received=lambda: subscriber.payloads(f"{BASE}/event"),
                stop=broker.stop,
                start=broker.start,
            )


def make(
    broker: Mosquitto, *, name: str = "ops", context: SinkContext | None = None, **settings: Any
) -> MqttSink:
    """Return a sink for the broker, as its first user if it has users."""
    login: dict[str, Any] = {}
    if broker.users:
        user, password = next(iter(broker.users.items()))
        login = {"username": user, "password": password}
    told = {"kind": "mqtt", "host": broker.host, "port": broker.port, **login, **settings}
    return MqttSink(name, MqttSink.Settings(**told), context or sample_context())


def at(broker: Mosquitto, topic: str) -> SeenMessage:
    """Return the retained message of a topic, as a new subscriber gets it."""
    with broker.subscriber(f"{BASE}/{topic}") as newcomer:
        (seen,) = newcomer.messages()
        return seen


@pytest.mark.parametrize(
    ("record", "topic", "expiry", "correlation"),
    [
        (sample_record(), "event", 7 * 24 * 3600, None),
        (RECEIPT, "receipt", 24 * 3600, b"one-of-a-kind"),
    ],
)
def test_a_record_has_the_properties_of_its_topic(
    broker: Mosquitto, record: Record, topic: str, expiry: int, correlation: bytes | None
) -> None:
    """A record is not retained, has a content type and expires; a receipt's Correlation Data is its
    jti.
    """
    sink = make(broker)
    with broker.subscriber("seb/#") as subscriber:
        sink.open()
        sink.deliver([record])
        message = subscriber.messages()[-1]
    sink.close()
    expected = SeenMessage(
        topic=f"{BASE}/{topic}",
        payload=record.body,
        retain=False,
        qos=1,
        content_type="application/cloudevents+json",
        expiry=expiry,
        correlation=correlation,
    )
    assert expected == message


@pytest.mark.parametrize(("interval", "expiry"), [(60, 120), (0.2, 1), (3600.5, 7201)])
def test_a_heartbeat_expires_after_two_of_its_intervals(
    broker: Mosquitto, interval: float, expiry: int
) -> None:
    """A heartbeat expires after two intervals, so that it displaces no event in the queue of a
    subscriber that is away.
    """
    sink = make(broker)
    data = {**sample_heartbeat().data, "heartbeat": {"intervalSeconds": interval}}
    with broker.subscriber(f"{BASE}/event") as subscriber:
        sink.open()
        sink.deliver([sealed("seb.bridge.heartbeat.v1", data), sample_record(2)])
        heartbeat, record = [each.expiry for each in subscriber.messages()]
    sink.close()
    # A broker hands on what is left of it, and nothing if less than a second is left.
    assert (heartbeat or 0) in range(max(0, expiry - 5), expiry + 1)
    assert record in range(7 * 24 * 3600 - 5, 7 * 24 * 3600 + 1)


class Bridge:
    """The parts of a bridge that a sink uses: a clock and pending events that a test can set."""

    def __init__(self) -> None:
        self.time = SAMPLE_TIME
        self.pending: tuple[PendingEvent, ...] = ()

    @property
    def context(self) -> SinkContext:
        return SinkContext(
            identity=lambda: SAMPLE_VM,
            now=lambda: self.time,
            version="1.2.3",
            instance_id="instance-1",
            pending=lambda: self.pending,
        )


PENDING = sample_pending(sample_event("E1"))


def test_the_state_is_retained_and_follows_what_is_pending(broker: Mosquitto) -> None:
    """The retained state has the pending events; without any it is an empty list."""
    bridge = Bridge()
    bridge.pending = (PENDING,)
    sink = make(broker, context=bridge.context)
    sink.open()
    sink.maintain()
    message = at(broker, "state")
    document = {
        "vm": {"vmId": SAMPLE_VM.vm_id, "name": "db-0", "resourceId": SAMPLE_VM.resource_id},
        "time": "2026-03-01T12:00:00.000Z",
        "events": [PENDING.to_wire()],
    }
    assert document == json.loads(message.payload)
    assert message.retain
    assert message.content_type == "application/json"
    assert message.expiry in range(6 * 3600 - 5, 6 * 3600 + 1)
    bridge.pending = ()
    sink.maintain()
    assert {**document, "events": []} == json.loads(at(broker, "state").payload)
    sink.close()


def test_a_store_that_knows_nothing_yet_takes_no_state_back(broker: Mosquitto) -> None:
    """The sink keeps the retained state until IMDS has answered, because a new store does not know
    the events in it.
    """
    bridge = Bridge()
    bridge.pending = (PENDING,)
    sink = make(broker, context=bridge.context)
    sink.open()
    sink.maintain()
    sink.close()
    bridge.pending = ()
    has_polled = False
    context = replace(bridge.context, has_polled=lambda: has_polled)
    sink = make(broker, context=context)
    sink.open()
    sink.maintain()
    assert json.loads(at(broker, "state").payload)["events"] == [PENDING.to_wire()]
    has_polled = True
    sink.maintain()
    assert json.loads(at(broker, "state").payload)["events"] == []
    sink.close()


@pytest.mark.parametrize("passed", [timedelta(hours=1), timedelta(hours=-2)])
def test_the_state_is_renewed_hourly(broker: Mosquitto, passed: timedelta) -> None:
    """The sink publishes an unchanged state again after an hour, or after a jump of the clock."""
    bridge = Bridge()
    sink = make(broker, context=bridge.context)
    with broker.subscriber(f"{BASE}/state") as subscriber:
        sink.open()
        sink.maintain()
        bridge.time += timedelta(minutes=59)
        sink.maintain()
        assert len(subscriber.messages()) == 1
        bridge.time = SAMPLE_TIME + passed
        sink.maintain()
        assert len(subscriber.messages()) == 2
    sink.close()


def test_the_status_says_online_and_offline(broker: Mosquitto) -> None:
    """The retained status is online after `open`, and offline, with the reason closed, after
    `close`.
    """
    sink = make(broker, context=Bridge().context)
    sink.open()
    online = {
        "status": "online",
        "reason": None,
        "time": "2026-03-01T12:00:00.000Z",
        "version": "1.2.3",
        "session": "instance-1",
        "sink": "ops",
        "commands": False,
        "prepares": False,
        "vm": {"vmId": SAMPLE_VM.vm_id, "name": "db-0", "resourceId": SAMPLE_VM.resource_id},
    }
    assert online == json.loads(at(broker, "status").payload)
    sink.close()
    offline = {**online, "status": "offline", "reason": "closed"}
    assert offline == json.loads(at(broker, "status").payload)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_the_will_says_offline_where_the_bridge_cannot(broker: Mosquitto, protocol: str) -> None:
    """If the connection is cut, the broker publishes the status offline, with the reason lost and
    without a time.
    """
    sink = make(broker, protocol=protocol)
    with broker.subscriber(f"{BASE}/status") as subscriber:
        sink.open()
        sink.abort()
        will = subscriber.wait_for(lambda message: b"offline" in message.payload)
    sink.close()
    document = json.loads(will.payload)
    assert will.retain
    assert tuple(document[k] for k in ("status", "reason", "time")) == ("offline", "lost", None)


def test_a_successor_is_online_after_its_predecessors_will(broker: Mosquitto) -> None:
    """When a second bridge takes over the session, the first one gets an error, and the status
    stays online.
    """
    first, second = make(broker), make(broker)
    first.open()
    with its_connection_ends():
        second.open()
    with pytest.raises(SinkError, match="no second bridge"):
        first.maintain()
    first.close()
    second.deliver([sample_record()])
    assert json.loads(at(broker, "status").payload)["status"] == "online"
    second.close()


def test_the_will_of_an_earlier_client_id_is_replaced(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The will of an earlier client id may arrive late; the sink publishes the status online once
    more after that time.
    """
    monkeypatch.setattr(MqttSink, "WILLS_SECONDS", 0.0)
    before, now = make(broker, name="before"), make(broker, name="now")
    before.open()
    now.open()
    with broker.subscriber(f"{BASE}/#") as subscriber:
        before.abort()
        subscriber.wait_for(lambda message: b"offline" in message.payload)
        now.maintain()
        now.maintain()
        now.deliver([sample_record()])
        subscriber.wait_for(lambda message: message.topic == f"{BASE}/event")
        statuses = [json.loads(each)["status"] for each in subscriber.payloads(f"{BASE}/status")]
    assert statuses == ["online", "offline", "online"]
    before.close()
    now.close()


def test_two_sinks_share_a_broker(broker: Mosquitto) -> None:
    """Sinks with different names do not take over each other's session."""
    one, two = make(broker, name="one"), make(broker, name="two")
    one.open()
    two.open()
    one.deliver([sample_record(1)])
    two.deliver([sample_record(2)])
    one.maintain()
    one.close()
    two.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_goes_away_is_a_lost_connection(broker: Mosquitto, how: str) -> None:
    """An idle sink notices that the broker has closed the connection."""
    sink = make(broker)
    sink.open()
    with its_connection_ends():
        getattr(broker, how)()
    with pytest.raises(SinkError, match="the connection was lost"):
        sink.maintain()
    sink.close()
