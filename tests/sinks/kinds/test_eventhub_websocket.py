"""Event Hubs over WebSockets: with the real SDK, through a real HTTP proxy, and when they break."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.amqp.cases import HUB, abandoned, bodies, everything_about, records
from support.amqp.server import SHARED_KEY, EventHubServer, HubFault
from support.sinks.addresses import Addresses
from support.sinks.http_proxy import TinyProxy
from support.sinks.throwaway_ca import ThrowawayCa
from support.sinks.websocket_gate import WebSocketGate

from sinks.base import SinkError
from sinks.kinds.eventhub import EventHubSink
from sinks.kinds.eventhub.settings import EventHubSettings
from sinks.testing import sample_context, sample_record


@pytest.fixture
def gate(hub: EventHubServer) -> Iterator[WebSocketGate]:
    """The hub's WebSockets endpoint."""
    with WebSocketGate(hub.port) as made:
        yield made


def sink_at(gate: WebSocketGate, host: str = "127.0.0.1", **settings: str) -> EventHubSink:
    """Return a sink for the hub behind the endpoint."""
    text = (
        f"Endpoint=sb://{host}:{gate.port}/;SharedAccessKeyName=p;"
        f"SharedAccessKey={SHARED_KEY};EntityPath={HUB};UseDevelopmentEmulator=true"
    )
    given = {"kind": "eventhub", "connection_string": text, "transport": "websocket", **settings}
    return EventHubSink("hub", EventHubSettings.model_validate(given), sample_context())


def test_records_arrive(hub: EventHubServer, gate: WebSocketGate) -> None:
    """Records arrive with the same bytes in the same order as over AMQP alone, also in messages
    that are longer than a frame or a read.
    """
    sink, sent = sink_at(gate), [*records(50), *[sample_record(51)] * 40]
    sink.open()
    sink.deliver(sent)
    sink.close()
    assert bodies(hub.messages(HUB)) == [each.body for each in sent]
    assert gate.paths == ["/$servicebus/websocket"]


def test_records_are_sent_again_after_a_cut_connection(
    hub: EventHubServer, gate: WebSocketGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records without an acknowledgement are sent again with the same ids over a new connection."""
    monkeypatch.setattr("sinks.kinds.eventhub.sink.SEND_SECONDS", 1.0)
    sink = sink_at(gate)
    sink.open()
    sink.deliver([sample_record(1)])
    gate.cut()
    deliver_at_last(sink, 2)
    hub.misbehave(HubFault.NO_ACK, times=1)
    with pytest.raises(SinkError, match="no answer in time"):
        sink.deliver([sample_record(3)])
    deliver_at_last(sink, 3)
    sink.close()
    assert {each.body for each in hub.messages(HUB)} == {
        sample_record(1).body,
        sample_record(2).body,
        sample_record(3).body,
    }


@pytest.mark.parametrize("status", [403, 502])
def test_no_websocket(gate: WebSocketGate, status: int) -> None:
    """An answer that is not a WebSocket is an error that says so; later deliveries succeed."""
    gate.answer = status
    sink = sink_at(gate)
    with pytest.raises(SinkError, match="is not a WebSocket"):
        sink.open()
    gate.answer = 101
    sink.open()
    sink.close()


def test_a_hub_with_dead_addresses_is_reached(
    hub: EventHubServer, gate: WebSocketGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink reaches a hub behind three addresses that never answer; the library alone gives up
    at the first of them.
    """
    with ExitStack() as stack:
        addresses = Addresses(stack)
        dead = [addresses.dead() for _ in range(3)]
        addresses.of(monkeypatch, *dead, ("127.0.0.1", gate.port), name="localhost")
        sink = sink_at(gate, host="localhost")
        sink.open()
        sink.deliver([sample_record()])
        sink.close()
    assert bodies(hub.messages(HUB)) == [sample_record().body]


# A proxy.


def deliver_at_last(sink: EventHubSink, number: int, tries: int = 12) -> None:
    """Deliver a record as the dispatcher does: after each failure again, on a new connection."""
    for left in reversed(range(tries)):
        try:
            sink.deliver([sample_record(number)])
        except SinkError:
            assert left, "it was never delivered"
        else:
            return


def test_through_a_proxy(hub: EventHubServer, gate: WebSocketGate, proxy: TinyProxy) -> None:
    """The connection goes through the proxy of the setting only."""
    sink = sink_at(gate, proxy=proxy.url)
    sink.open()
    sink.deliver(records(20))
    sink.close()
    assert bodies(hub.messages(HUB)) == [each.body for each in records(20)]
    assert proxy.connects() == 1


def test_a_wrong_password_for_the_proxy(gate: WebSocketGate, proxy: TinyProxy) -> None:
    """The error names the proxy, and no text contains the password."""
    with pytest.raises(SinkError, match="the proxy did not connect") as caught:
        sink_at(gate, proxy=proxy.url.replace("s3cret", "wr0ng")).open()
    assert "wr0ng" not in everything_about(caught.value)


def test_a_proxy_that_is_killed_and_comes_back(
    hub: EventHubServer, gate: WebSocketGate, proxy: TinyProxy
) -> None:
    """Every record arrives: those that could not be sent are sent once the proxy is back."""
    sink = sink_at(gate, proxy=proxy.url)
    sink.open()
    for number in range(1, 7):
        if number % 2 == 0:
            proxy.kill()
            with pytest.raises(SinkError):
                sink.deliver([sample_record(number)])
            proxy.start()
        deliver_at_last(sink, number)
    sink.close()
    arrived = list(dict.fromkeys(bodies(hub.messages(HUB))))
    assert arrived == [sample_record(number).body for number in range(1, 7)]


@pytest.mark.skipif(sys.platform == "win32", reason="a process is frozen with a signal")
def test_a_proxy_that_is_slow(
    hub: EventHubServer,
    gate: WebSocketGate,
    proxy: TinyProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a frozen proxy the delivery ends within the sink's deadline; later every record
    arrives.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.sink.SEND_SECONDS", 1.0)
    sink = sink_at(gate, proxy=proxy.url)
    sink.open()
    sink.deliver([sample_record(1)])
    proxy.freeze()
    try:
        with pytest.raises(SinkError):
            sink.deliver([sample_record(2)])
    finally:
        proxy.thaw()
    deliver_at_last(sink, 2)
    sink.close()
    arrived = list(dict.fromkeys(bodies(hub.messages(HUB))))
    assert arrived == [sample_record(1).body, sample_record(2).body]


def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, proxy: TinyProxy) -> None:
    """A hub with TLS is reached through HTTPS_PROXY if the sink names no proxy."""
    monkeypatch.setenv("NO_PROXY", "nothing.example")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    # Port 443 of this machine is nobody's: that it was asked for is what counts.
    with pytest.raises(SinkError, match="proxy did not connect"):
        secured_sink().open()
    assert proxy.connects() == 1


# TLS.


@pytest.fixture
def secured(
    hub: EventHubServer, ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WebSocketGate]:
    """A WebSockets endpoint with TLS, where the library expects port 443."""
    import websocket._http  # noqa: PLC0415

    with WebSocketGate(hub.port, tls=ca.server().context) as made:
        original = websocket._http.parse_url  # type: ignore[attr-defined]

        def there(url: str) -> tuple[str, int, str, bool]:
            host, port, resource, secure = original(url)
            assert (port, secure) == (443, True)
            return host, made.port, resource, secure

        monkeypatch.setattr(websocket._http, "parse_url", there)
        yield made


def secured_sink() -> EventHubSink:
    """A sink for a hub with TLS."""
    text = f"Endpoint=sb://localhost/;SharedAccessKeyName=p;SharedAccessKey={SHARED_KEY}"
    given = {"kind": "eventhub", "connection_string": text, "name": HUB, "transport": "websocket"}
    return EventHubSink("hub", EventHubSettings.model_validate(given), sample_context())


@pytest.mark.usefixtures("secured")
@pytest.mark.skipif(sys.platform == "win32", reason="the store of Windows is no file")
def test_records_go_over_tls(
    hub: EventHubServer, ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records arrive over port 443 at a hub whose certificate the system trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    sink = secured_sink()
    sink.open()
    sink.deliver(records(5))
    sink.close()
    assert bodies(hub.messages(HUB)) == [each.body for each in records(5)]


@pytest.mark.usefixtures("secured")
def test_a_certificate_that_is_not_trusted(hub: EventHubServer) -> None:
    """The sink sends nothing, not even a token, to a hub whose certificate is not trusted."""
    with pytest.raises(SinkError, match="certificate is not trusted"):
        secured_sink().open()
    assert hub.tokens == []


@pytest.mark.usefixtures("secured")
@pytest.mark.skipif(sys.platform == "win32", reason="the store of Windows is no file")
def test_a_stuck_delivery_can_be_cut(
    hub: EventHubServer, ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`abort` from another thread ends a stuck delivery, as when the sink's deadline has passed."""
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    sink = secured_sink()
    sink.open()
    hub.misbehave(HubFault.NO_ACK)
    ended = abandoned(hub, sink, lambda: sink.deliver([sample_record()]))
    assert isinstance(ended, SinkError)
    sink.close()
