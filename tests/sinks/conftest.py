"""Fixtures for tests of sinks: real destinations, and an environment without this machine's
proxies.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.amqp.cases import sink_for
from support.amqp.server import EventHubServer
from support.mqtt.mosquitto import Mosquitto
from support.sinks import http_proxy
from support.sinks.http_proxy import TinyProxy
from support.sinks.http_server import HttpServer
from support.sinks.throwaway_ca import ThrowawayCa

from sinks.kinds.eventhub import EventHubSink


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the proxy variables of the user who runs the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A server that answers 204 unless a test sets another answer."""
    with HttpServer() as running:
        yield running


@pytest.fixture
def ca(tmp_path: Path) -> ThrowawayCa:
    """A certificate authority that the system does not trust."""
    return ThrowawayCa(tmp_path / "ca")


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[TinyProxy]:
    """A real HTTP proxy that asks for a password."""
    if http_proxy.executable() is None:
        pytest.skip("needs tinyproxy; make tools installs it")
    with TinyProxy(tmp_path / "proxy", user=("vm", "s3cret")) as made:
        yield made


@pytest.fixture
def hub() -> Iterator[EventHubServer]:
    """A running hub; at the end it has reported no error of its own."""
    with EventHubServer() as made:
        yield made
    assert made.bugs == []


@pytest.fixture
def hub_sink(hub: EventHubServer) -> Iterator[EventHubSink]:
    """An open sink for that hub."""
    sink = sink_for(hub)
    sink.open()
    yield sink
    sink.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker without passwords and ACLs."""
    with Mosquitto(tmp_path / "broker") as made:
        yield made
