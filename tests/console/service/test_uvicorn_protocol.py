"""The limits of connections: slow or many clients do not affect others."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually

from console.service.uvicorn_protocol import ConnectionLimits, LimitedConnection, limits, protocol
from wire.strictjson import canonical_json

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LARGE = 20_000_000


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer once the body is there; `/large` with more than any buffer holds."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(given: ConnectionLimits | Any) -> Iterator[int]:
    """Start a server with these limits, or with this protocol; yield its port."""
    http = protocol(given) if isinstance(given, ConnectionLimits) else given
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application, log_config=None, lifespan="off", http=http, timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    eventually(lambda: server.started, what="the server")
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(20)


@contextmanager
def client(port: int, *parts: bytes) -> Iterator[socket.socket]:
    """Return a client that has sent so much of a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        yield connection


def is_answered(connection: socket.socket) -> bool:
    """Wait for the server's answer; return whether it is `ok`."""
    answer = b""
    while not answer.endswith(b"ok") and (part := connection.recv(1000)):
        answer += part
    return answer.endswith(b"ok")


def is_ended(connection: socket.socket) -> bool:
    """Wait for the end of the connection; return whether it came."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def has_ended(connection: socket.socket) -> bool:
    """Check whether the server has ended the connection by now."""
    try:
        return is_ended(connection)
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    "parts",
    [(), (HEAD,), (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",)],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_come_is_ended(parts: tuple[bytes, ...]) -> None:
    """The connection of an incomplete request is closed at its deadline."""
    with (
        serving(ConnectionLimits(head_seconds=0.2, body_seconds=0.2)) as port,
        client(port, *parts) as slow,
    ):
        assert is_ended(slow)


def test_one_byte_at_a_time_does_not_help() -> None:
    """The deadline is for the whole head, and single bytes do not extend it."""
    with serving(ConnectionLimits(head_seconds=0.5)) as port, client(port, HEAD) as slow:
        begun = time.monotonic()
        slow.settimeout(0.05)
        while not has_ended(slow) and time.monotonic() - begun < 20:
            with suppress(ConnectionError):
                slow.sendall(b"X")
        assert time.monotonic() - begun < 20


def test_a_later_request_has_the_same_time() -> None:
    """A later request on a connection has the same deadline as the first."""
    with (
        serving(ConnectionLimits(head_seconds=1.0)) as port,
        client(port, HEAD + b"\r\n") as slow,
    ):
        assert is_answered(slow)
        slow.sendall(HEAD)
        assert is_ended(slow)


def test_an_idle_connection_and_a_slow_answer_are_left_alone() -> None:
    """An idle connection, and one whose answer takes long, is not closed."""
    with (
        serving(ConnectionLimits(head_seconds=1.0, body_seconds=1.0)) as port,
        client(port, HEAD + b"\r\n") as good,
    ):
        assert is_answered(good)
        good.settimeout(2.0)
        with pytest.raises(TimeoutError):
            good.recv(1)


def test_an_answer_that_is_not_read_is_ended() -> None:
    """The connection of a client that does not read its answer is closed."""
    request = HEAD.replace(b"/ ", b"/large ", 1) + b"\r\n"
    with serving(ConnectionLimits(reading_seconds=0.3)) as port, client(port, request) as slow:
        assert slow.recv(1) == b"H"
        time.sleep(2)  # it does not read, for longer than it may
        got = 0
        with suppress(ConnectionError):
            while part := slow.recv(1 << 16):
                got += len(part)
        assert got < LARGE


def test_clients_above_the_limit_are_refused() -> None:
    """A client above the limit is answered 503; when another one has gone, there is room again."""
    with serving(ConnectionLimits(connections=3)) as port, ExitStack() as stack:
        held = [stack.enter_context(client(port)) for _ in range(3)]
        for each in held:  # a connection counts once the server has seen it
            each.sendall(HEAD + b"\r\n")
            assert is_answered(each)
        with client(port) as refused:
            assert refused.recv(1000).startswith(b"HTTP/1.1 503 ")
        held[0].close()

        def has_room() -> bool:
            with client(port, HEAD + b"\r\n") as later:
                return is_answered(later)

        eventually(has_room, what="room")


def test_a_head_without_an_end_is_ended() -> None:
    """A head above the limit ends the connection, however fast it comes."""
    with serving(ConnectionLimits(head_bytes=1000)) as port, client(port, HEAD) as endless:
        with suppress(ConnectionError):
            for number in range(1000):
                endless.sendall(b"X-%d: %b\r\n" % (number, b"a" * 1000))
        assert is_ended(endless)
        with client(port, HEAD + b"\r\n") as good:
            assert is_answered(good)


def test_the_body_of_an_answer_does_not_wait_for_its_head() -> None:
    """Nagle's algorithm is off, because head and body are two writes and would be 40 ms apart."""
    made: list[LimitedConnection] = []

    def noting(*args: Any, **kwargs: Any) -> LimitedConnection:
        made.append(LimitedConnection(*args, limits=ConnectionLimits(), **kwargs))
        return made[-1]

    with serving(noting) as port, client(port, HEAD + b"\r\n") as reader:
        assert is_answered(reader)
        connection = made[-1].transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_there_are_no_more_connections_than_files() -> None:
    """The number of connections is below the limit of open files, and polls leave room for
    others.
    """
    assert 0 < limits().connections <= ConnectionLimits().connections
    assert limits(65_536) == ConnectionLimits()
    assert (limits(1024).connections, limits(1024).polls) == (896, 746)
    assert (limits(64).connections, limits(64).polls) == (1, 1)
    assert ConnectionLimits().polls == 10_000


def test_a_console_answers_while_hundreds_hold_half_a_request(tmp_path: Path) -> None:
    """Hundreds of incomplete requests do not slow down the page and the API, and are closed."""
    with ConsoleProcess(tmp_path / "console") as console, ExitStack() as stack:
        half = b"POST /ingest/v1/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200000\r\n"
        slow = [
            stack.enter_context(client(console.port, HEAD if number % 2 else half + b"\r\n{"))
            for number in range(300)
        ]
        assert console.get("overview")["vms"]["total"] == 0
        assert is_ended(slow[1])
        assert console.http.get(console.url + "/healthz", timeout=5).status_code == 200


def test_large_bodies_of_strangers_take_no_more_than_some_memory(tmp_path: Path) -> None:
    """Large incomplete bodies are refused above a limit for all together; small ones are accepted,
    and large ones again once there is room.
    """
    size = 250_000
    head = f"POST /ingest/v1/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
    vm = FakeVm()
    large = json.loads(vm.event("E").body)
    large["data"]["raw"] = "x" * 200_000
    with ConsoleProcess(tmp_path / "console") as console:
        with ExitStack() as stack:
            part = b"x" * (size - 1)
            slow = [
                stack.enter_context(client(console.port, head.encode(), part)) for _ in range(150)
            ]
            readable, _, _ = select.select(slow, [], [], 20)
            assert readable
            assert readable[0].recv(100).startswith(b"HTTP/1.1 503 ")
            assert console.post(vm.heartbeat()).status_code == 204
        posted = lambda: console.post_body(canonical_json(large), vm_id=vm.vm_id)  # noqa: E731
        eventually(lambda: posted().status_code == 204, what="a large record", timeout=60)
