"""Connections to a host that has several addresses, some of them dead."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr
from support.sinks.addresses import Addresses
from support.sinks.http_server import HttpServer

from sinks.kinds.webhook import WebhookSink
from sinks.kinds.webhook.settings import WebhookSettings
from sinks.samples import sample_context, sample_record
from sinks.shared.sockets import NEXT_ADDRESS_SECONDS, connect


@pytest.fixture
def addresses() -> Iterator[Addresses]:
    """Listening sockets, which are closed at the end of the test."""
    with ExitStack() as stack:
        yield Addresses(stack)


def test_dead_addresses_cost_little(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    """`connect` reaches the live address soon, although three before it never answer."""
    live = addresses.live()
    dead = [addresses.dead() for _ in range(3)]
    addresses.of(monkeypatch, *dead, live)
    begun = time.monotonic()
    with connect("receiver.example", 443, timeout=20) as connection:
        assert connection.getpeername() == live
        assert connection.gettimeout() == 20
    assert time.monotonic() - begun >= 3 * NEXT_ADDRESS_SECONDS
    assert time.monotonic() - begun < 10


def test_an_address_that_answers_late_is_waited_for(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`connect` returns the connection of a slow first address if the next ones fail at once."""
    slow = addresses.live()
    addresses.of(monkeypatch, addresses.dead(), addresses.closed(), slow)
    with connect("receiver.example", 443, timeout=20) as connection:
        assert connection.getpeername() == slow


def test_a_slow_name_server_takes_no_time_from_the_connection(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`connect` reaches the address although its name took longer than the limit to resolve."""
    live = addresses.live()
    addresses.of(monkeypatch, addresses.dead(), live, after=2.1)
    with connect("receiver.example", 443, timeout=2) as connection:
        assert connection.getpeername() == live


def test_all_are_refused(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    """If every address refuses, `connect` raises the last one's error at once."""
    addresses.of(monkeypatch, addresses.closed(), addresses.closed())
    with pytest.raises(ConnectionRefusedError):
        connect("receiver.example", 443, timeout=20)


def test_none_answers_in_time(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no address answers, `connect` ends after one limit for all of them together."""
    addresses.of(monkeypatch, addresses.dead(), addresses.closed(), addresses.dead())
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        connect("receiver.example", 443, timeout=0.6)
    assert time.monotonic() - begun < 10


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_no_socket_is_left_behind(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    """`connect` closes the attempts that it did not choose."""
    addresses.of(monkeypatch, addresses.dead(), addresses.closed(), addresses.live())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        connect("receiver.example", 443, timeout=20).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_webhook_reaches_the_one_that_lives(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook's host with three dead addresses before the live one gets its record soon."""
    with HttpServer() as server:
        dead = [addresses.dead() for _ in range(3)]
        settings = WebhookSettings(kind="webhook", url=SecretStr("http://receiver.example/hook"))
        sink = WebhookSink("hook", settings, sample_context())
        addresses.of(monkeypatch, *dead, ("127.0.0.1", server.port))
        begun = time.monotonic()
        sink.open()
        sink.deliver([sample_record()])
        sink.close()
        assert time.monotonic() - begun < 10
        assert len(server.requests()) == 1
