"""What tests of sinks share: far ends, and an environment without the proxies of this machine."""

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

from sinks.eventhub import EventHubSink


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the user who runs the tests are not part of them."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A server that answers 204 unless told otherwise."""
    with HttpServer() as running:
        yield running


@pytest.fixture
def ca(tmp_path: Path) -> ThrowawayCa:
    """A CA that is not trusted yet."""
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
    """A hub that runs, and that made no mistake of its own by the end."""
    with EventHubServer() as made:
        yield made
    assert made.bugs == []


@pytest.fixture
def hub_sink(hub: EventHubServer) -> Iterator[EventHubSink]:
    """A sink for that hub, open."""
    sink = sink_for(hub)
    sink.open()
    yield sink
    sink.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that lets everybody do everything."""
    with Mosquitto(tmp_path / "broker") as made:
        yield made
