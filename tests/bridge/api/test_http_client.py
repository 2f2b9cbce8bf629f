"""The client with which commands ask a running bridge."""

from collections.abc import Iterator

import pytest
from support.process.bridge import NOWHERE
from support.sinks.http_server import HttpServer

from bridge.api.http_client import Viewer
from sinks.shared.errors import ConfigurationError, SebError, TryLaterError, UnreachableError


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    """A stand-in for a running bridge."""
    with HttpServer() as made:
        yield made


@pytest.fixture
def viewer(server: HttpServer) -> Viewer:
    """A client of that server."""
    return Viewer(f"127.0.0.1:{server.port}")


def test_an_answer_is_read(server: HttpServer, viewer: Viewer) -> None:
    """The JSON object of an answer is returned."""
    server.answer(status=200, body=b'{"stream": "s"}')
    assert viewer.json("/good") == {"stream": "s"}


@pytest.mark.parametrize(
    ("answer", "error", "expected"),
    [
        ((503, b'{"error": "the store is away"}'), TryLaterError, "the store is away"),
        ((503, b'{"error": "\\u001b]0;mine\\u0007"}'), TryLaterError, "mine"),
        ((400, b'{"error": "no such limit"}'), UnreachableError, "no such limit"),
        ((200, b"<html>"), UnreachableError, "not a bridge"),
        ((200, b"[]"), UnreachableError, "not a bridge"),
        ((200, b"{}"), UnreachableError, "not a bridge"),
        ((200, b"[" * 200_000), UnreachableError, "not a bridge"),
    ],
    ids=["later", "escapes", "refusal", "html", "list", "other", "deep"],
)
def test_an_error_of_the_server_is_shown_safely(
    server: HttpServer,
    viewer: Viewer,
    answer: tuple[int, bytes],
    error: type[SebError],
    expected: str,
) -> None:
    """The error has the bridge's own reason without control characters; the text of another server
    at this address is not shown.
    """
    server.answer(status=answer[0], body=answer[1])
    with pytest.raises(error, match=expected) as caught:
        viewer.json("/x")
    assert str(caught.value).isprintable()


def test_without_a_server_there_is_a_remedy() -> None:
    """If nothing answers, the error says what to check."""
    with pytest.raises(UnreachableError, match="SEB_HTTP__LISTEN"):
        Viewer(NOWHERE.removeprefix("http://")).get("/good")


def test_a_server_that_is_turned_off() -> None:
    """If the server is turned off, the error says so, and what works without it."""
    with pytest.raises(ConfigurationError, match="seb outbox list"):
        Viewer("")


def test_a_stream_is_followed_from_a_place(server: HttpServer, viewer: Viewer) -> None:
    """The client reads a stream from a given place, and skips comments and unknown fields."""
    said = b": hello\n\nretry: 1\n\nid: s/1\nevent: record\ndata: {}\n\n"
    server.answer(status=200, body=said)
    assert list(viewer.follow("s/0")) == [("s/1", b"{}")]
    asked = server.requests()[-1].headers
    assert (asked["last-event-id"], asked["accept"]) == ("s/0", "text/event-stream")
