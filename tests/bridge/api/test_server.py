"""The HTTP server of a bridge: its address, its limits, and its end."""

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.ports import free_port

from bridge.api.server import (
    ASK_SECONDS,
    CONNECTIONS,
    READ_SECONDS,
    THREADS,
    Server,
    bound,
    close_slow,
    make_room,
)

PATIENCE = 20.0
Ask = Callable[..., http.client.HTTPResponse]


def application(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    """Answer with what was requested."""
    start("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


@pytest.fixture
def port() -> int:
    """Return a port that was free just now."""
    return free_port()


@pytest.fixture
def server(port: int) -> Iterator[Server]:
    """A server that answers on a free port."""
    with closing(Server(application, "127.0.0.1", port)) as made:
        ask(port)
        yield made


def ask(port: int, path: str = "/x") -> tuple[int, bytes, dict[str, str]]:
    """Send one request, from a client that waits for the server."""
    for _ in range(int(PATIENCE / 0.05)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.headers)
        except ConnectionRefusedError:
            threading.Event().wait(0.05)
        finally:
            connection.close()
    raise AssertionError("nobody listens")


def test_it_serves_until_it_is_closed(port: int) -> None:
    """The server answers until it is closed, and then frees its address for the next one."""
    for _ in range(3):
        server = Server(application, "127.0.0.1", port)
        assert ask(port)[:2] == (200, b"/x")
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


@pytest.mark.usefixtures("server")
def test_it_does_not_say_what_it_is_made_of(port: int) -> None:
    """No header of an answer names the software."""
    assert "Server" not in ask(port)[2]


def test_no_thread_and_no_descriptor_is_left(port: int) -> None:
    """A server that is made and closed many times leaves no thread and no descriptor, also with a
    connected client.
    """
    before = {thread for thread in threading.enumerate() if thread.name.startswith("waitress")}
    for _ in range(3):
        server = Server(application, "127.0.0.1", port)
        ask(port)
        with socket.create_connection(("127.0.0.1", port)):
            server.close()
    after = {thread for thread in threading.enumerate() if thread.name.startswith("waitress")}
    assert {thread for thread in after - before if thread.is_alive()} == set()


def test_an_address_that_is_taken_is_waited_for(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The server logs once that its address is in use, with a remedy, and serves as soon as it is
    free.
    """
    with caplog.at_level(logging.INFO, "bridge.api.server"):
        with closing(bound("127.0.0.1", port)) as other:
            other.listen()
            server = Server(application, "127.0.0.1", port, retry=0.01)
            while not caplog.records:
                threading.Event().wait(0.01)
            threading.Event().wait(0.1)  # many tries, one line
            assert [record.__dict__["action"] for record in caplog.records] == ["http_trouble"]
            assert "SEB_HTTP__LISTEN" in caplog.records[0].getMessage()
        assert ask(port)[0] == 200
        server.close()


def test_waiting_for_an_address_ends_with_the_server(port: int) -> None:
    """`close` ends the wait for an address."""
    with closing(bound("127.0.0.1", port)) as other:
        other.listen()
        server = Server(application, "127.0.0.1", port)
        server.close()
        assert not server.is_alive()


@pytest.mark.usefixtures("server")
def test_a_large_request_is_refused(port: int) -> None:
    """A request with headers above the limit is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/", headers={"X-Long": "x" * (64 << 10)})
    assert connection.getresponse().status == 431
    connection.close()


@pytest.mark.usefixtures("server")
def test_silent_connections_do_not_block_others(port: int) -> None:
    """A hundred silent connections leave room for others, and each is closed after a time."""
    with ExitStack() as stack:
        for _ in range(100):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            silent.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert ask(port)[0] == 200


@pytest.mark.usefixtures("server")
def test_connections_above_the_limit_do_not_block_others(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection above the limit replaces the oldest one that has not sent a request."""
    monkeypatch.setattr("bridge.api.server.ASK_SECONDS", 600.0)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS + 50):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            silent.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert ask(port)[0] == 200


def test_clients_that_never_read_do_not_block_others(port: int) -> None:
    """A connection carries one request, so that unread answers to further ones take no thread."""

    def large(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"x" if environ["PATH_INFO"] == "/healthz" else b"x" * (1 << 20)]

    server = Server(large, "127.0.0.1", port)
    ask(port, "/healthz")
    with ExitStack() as stack:
        for _ in range(2 * THREADS):
            lazy = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            lazy.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
        assert ask(port, "/healthz")[0] == 200
    server.close()


@dataclass
class ServerConnection:
    """A connection as the server keeps it."""

    creation_time: float
    last_activity: float = 0.0
    total_outbufs_len: int = 0
    requests: list[str] = field(default_factory=list)
    closed: bool = False

    def handle_close(self) -> None:
        self.closed = True


def test_an_incomplete_request_is_not_waited_for() -> None:
    """A connection whose request is not complete in time is closed, even if single bytes arrive."""
    slow, new = ServerConnection(100.0, last_activity=110.0), ServerConnection(105.0)
    close_slow([slow, new], 100.1 + ASK_SECONDS)
    assert (slow.closed, new.closed) == (True, False)


def test_an_answer_that_is_not_read_is_not_kept() -> None:
    """A connection whose answer is not read is closed; one whose answer is being read or made is
    kept.
    """
    now = 1000.0
    unread = ServerConnection(0.0, last_activity=now - READ_SECONDS - 0.1, total_outbufs_len=9)
    read = ServerConnection(0.0, last_activity=now - 1.0, total_outbufs_len=9, requests=["r"])
    made = ServerConnection(0.0, requests=["r"])
    close_slow([unread, read, made], now)
    assert (unread.closed, read.closed, made.closed) == (True, False, False)


def test_room_is_made_by_the_oldest_that_has_not_asked() -> None:
    """Only a connection without a complete request makes room, the oldest one first."""
    asked, reading = (
        ServerConnection(0.0, requests=["r"]),
        ServerConnection(0.0, total_outbufs_len=9),
    )
    old, new = ServerConnection(1.0), ServerConnection(2.0)
    make_room([asked, reading, old, new])
    assert [each.closed for each in (asked, reading, old, new)] == [False, False, True, False]
    make_room([asked, reading])
    assert not asked.closed
    assert not reading.closed
