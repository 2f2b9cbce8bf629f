"""MQTT within WebSockets and through a real HTTP proxy, against a real Mosquitto."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.subscriber import Subscriber
from support.sinks.http_proxy import TinyProxy
from support.sinks.throwaway_ca import ThrowawayCa
from support.sinks.websocket_gate import WebSocketGate

from sinks.base import SinkError
from sinks.kinds.mqtt import MqttSink
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.testing import SAMPLE_VM, SinkContract, sample_context, sample_record

EVENTS = f"seb/v1/default/vm/{SAMPLE_VM.vm_id}/event"


class Broker:
    """A Mosquitto behind WebSockets, as the destination of a sink."""

    secrets: Sequence[str] = ()

    def __init__(self, broker: Mosquitto, gate: WebSocketGate, seen: Subscriber) -> None:
        self.broker, self.gate, self._seen = broker, gate, seen

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"host": self.gate.host, "port": str(self.gate.port), "transport": "websocket"}

    def received(self) -> Sequence[bytes]:
        return self._seen.payloads(EVENTS)

    def stop(self) -> None:
        self.broker.stop()

    def start(self) -> None:
        self.broker.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker behind WebSockets."""
    with (
        Mosquitto(tmp_path / "broker") as made,
        WebSocketGate(made.port) as gate,
        made.subscriber("seb/#") as subscriber,
    ):
        yield Broker(made, gate, subscriber)


def sink_for(**settings: Any) -> MqttSink:
    """Return a sink with these settings."""
    made = MqttSettings.model_validate({"kind": "mqtt", **settings})
    return MqttSink("mqtt", made, sample_context())


class TestContract(SinkContract):
    """The contract of every sink, over WebSockets."""

    sink_class = MqttSink

    @pytest.fixture
    def destination(self, broker: Broker) -> Broker:
        return broker


def test_path_and_commands(broker: Broker) -> None:
    """The sink asks the broker for PATH, subscribes to the command topic as without WebSockets, and
    `check` says so.
    """
    result = sink_for(**broker.settings, path="/ws", commands="true").check()
    assert [each.level for each in result if each.level == "fail"] == []
    assert set(broker.gate.paths) == {"/ws"}


@pytest.mark.parametrize("status", [404, 502])
def test_no_websocket(broker: Broker, status: int) -> None:
    """The error about an answer that is not a WebSocket says so, and what to check."""
    broker.gate.answer = status
    with pytest.raises(SinkError, match="not a WebSocket"):
        sink_for(**broker.settings).open()


@pytest.mark.skipif(sys.platform == "win32", reason="the store of Windows is no file")
def test_with_tls(tmp_path: Path, ca: ThrowawayCa) -> None:
    """The sink verifies the certificate before it sends anything, and `check` names the version of
    TLS.
    """
    tls = ca.server().context
    with Mosquitto(tmp_path / "broker") as made, WebSocketGate(made.port, tls=tls) as gate:
        there = {"host": "localhost", "port": gate.port, "transport": "websocket"}
        result = sink_for(**there, tls={"ca": str(ca.cert)}).check()
        assert ("ok", True) in [(each.level, "TLSv1" in each.text) for each in result]
        with pytest.raises(SinkError, match="not trusted"):
            sink_for(**there, tls={}).open()


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_through_a_proxy(broker: Broker, proxy: TinyProxy, transport: str) -> None:
    """The connection goes through the proxy, with and without WebSockets."""
    port = broker.gate.port if transport == "websocket" else broker.broker.port
    there = {"host": "127.0.0.1", "port": port, "transport": transport}
    sink = sink_for(**there, proxy=proxy.url)
    sink.open()
    sink.deliver([sample_record(1)])
    sink.close()
    assert sample_record(1).body in broker.received()
    assert proxy.connects() == 1


def test_a_proxy_that_is_killed(broker: Broker, proxy: TinyProxy) -> None:
    """Every record arrives after the proxy is back; the error names the proxy without its
    password.
    """
    sink = sink_for(**broker.settings, proxy=proxy.url)
    sink.open()
    for number in range(1, 6):
        if number % 2 == 0:
            proxy.kill()
            with pytest.raises(SinkError):
                sink.deliver([sample_record(number)])
            with pytest.raises(SinkError, match="proxy") as caught:
                sink.open()
            assert "s3cret" not in str(caught.value)
            proxy.start()
            sink.open()
        sink.deliver([sample_record(number)])
    sink.close()
    arrived = list(dict.fromkeys(broker.received()))
    assert arrived == [sample_record(number).body for number in range(1, 6)]


@pytest.mark.skipif(sys.platform == "win32", reason="a process is frozen with a signal")
def test_a_proxy_that_is_frozen(broker: Broker, proxy: TinyProxy) -> None:
    """The delivery ends in time, and the record arrives once the proxy works again."""
    sink = sink_for(**broker.settings, proxy=proxy.url)
    sink.ACK_TIMEOUT = 1.0  # type: ignore[misc]
    sink.open()
    proxy.freeze()
    try:
        with pytest.raises(SinkError):
            sink.deliver([sample_record(1)])
    finally:
        proxy.thaw()
    sink.open()
    sink.deliver([sample_record(1)])
    sink.close()
    assert sample_record(1).body in broker.received()


def test_a_proxy_that_refuses(broker: Broker, proxy: TinyProxy) -> None:
    """The error has the proxy's status, and not the wrong password."""
    wrong = proxy.url.replace("s3cret", "wr0ng")
    with pytest.raises(SinkError, match="it answered 40") as caught:
        sink_for(**broker.settings, proxy=wrong).open()
    assert "wr0ng" not in str(caught.value)
