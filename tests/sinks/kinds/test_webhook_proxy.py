"""A webhook through a real HTTP proxy that its own setting names."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.sinks.http_proxy import TinyProxy
from support.sinks.http_server import HttpServer
from support.sinks.throwaway_ca import ThrowawayCa
from support.sinks.webhook import hasty

from sinks.base import SinkError
from sinks.testing import sample_record


@pytest.fixture
def server(ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """A receiver with TLS, whose authority is trusted."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca.cert))
    with HttpServer(tls=ca.server()) as made:
        yield made


def test_through_the_proxy_of_the_sink(server: HttpServer, proxy: TinyProxy) -> None:
    """The record goes through the sink's proxy, whatever the environment names, and `check` says
    so.
    """
    sink = hasty(server, proxy=proxy.url)
    sink.deliver([sample_record()])
    assert [each.body for each in server.requests()] == [sample_record().body]
    assert proxy.connects() == 1
    result = sink.check()
    assert result[-1].text == f"proxy http://127.0.0.1:{proxy.port} accepts connections"
    sink.close()


def test_a_proxy_that_was_killed(server: HttpServer, proxy: TinyProxy) -> None:
    """The error names the proxy without its password, and the record arrives when the proxy is
    back.
    """
    sink = hasty(server, proxy=proxy.url)
    sink.deliver([sample_record(1)])
    proxy.kill()
    with suppress(SinkError):  # the kept connection is found broken first
        sink.deliver([sample_record(2)])
    with pytest.raises(SinkError, match="proxy") as caught:
        sink.deliver([sample_record(2)])
    assert "s3cret" not in str(caught.value)
    proxy.start()
    sink.deliver([sample_record(2)])
    assert [each.body for each in server.requests()][-1] == sample_record(2).body
    sink.close()
