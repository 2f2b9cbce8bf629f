from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from support.process.bridge import NOWHERE

from bridge.api.http_client import Viewer
from bridge.errors import ConfigurationError, TryLaterError, UnreachableError

ANSWERS: dict[str, tuple[int, bytes]] = {
    "/good": (200, b'{"stream": "s"}'),
    "/later": (503, b'{"error": "the store is away"}'),
    "/wrong": (400, b'{"error": "no such limit"}'),
    "/html": (200, b"<html>"),
    "/other": (200, b"{}"),
    "/deep": (200, b"[" * 200_000),
    "/escape": (503, b'{"error": "\\u001b]0;mine\\u0007"}'),
    "/list": (200, b"[]"),
    "/api/v1/events": (200, b": hello\n\nretry: 1\n\nid: s/1\nevent: record\ndata: {}\n\n"),
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        self.server.asked.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A stand-in for a running bridge."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as made:
        made.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def viewer(server: ThreadingHTTPServer) -> Viewer:
    """One who looks at it."""
    return Viewer(f"127.0.0.1:{server.server_port}")


def test_an_answer_is_read(viewer: Viewer) -> None:
    """As the JSON object that it is."""
    assert viewer.json("/good") == {"stream": "s"}


def test_a_bridge_that_cannot_answer_now_says_why(viewer: Viewer) -> None:
    """With the exit code for later."""
    with pytest.raises(TryLaterError, match="the store is away"):
        viewer.json("/later")


@pytest.mark.parametrize("path", ["/html", "/list", "/other", "/deep"])
def test_something_else_that_listens_there_is_told(viewer: Viewer, path: str) -> None:
    """Rather than shown as if it were ours."""
    with pytest.raises(UnreachableError, match="not a bridge"):
        viewer.json(path)


def test_others_words_reach_no_terminal_as_they_are(viewer: Viewer) -> None:
    """Nothing that it would obey."""
    with pytest.raises(TryLaterError) as caught:
        viewer.json("/escape")
    assert str(caught.value).isprintable()


def test_a_refusal_is_told(viewer: Viewer) -> None:
    """In the bridge's own words."""
    with pytest.raises(UnreachableError, match="no such limit"):
        viewer.json("/wrong")


def test_nobody_there_is_told(server: ThreadingHTTPServer) -> None:
    """With what to look at."""
    del server
    with pytest.raises(UnreachableError, match="SEB_HTTP__LISTEN"):
        Viewer(NOWHERE.removeprefix("http://")).get("/good")


def test_a_server_that_is_turned_off_is_told() -> None:
    """And what works without it."""
    with pytest.raises(ConfigurationError, match="seb outbox list"):
        Viewer("")


def test_a_stream_is_followed_from_a_place(server: ThreadingHTTPServer, viewer: Viewer) -> None:
    """Comments and what else there is are passed over."""
    assert list(viewer.follow("s/0")) == [("s/1", b"{}")]
    asked = server.asked[-1]  # type: ignore[attr-defined]
    assert (asked["Last-Event-ID"], asked["Accept"]) == ("s/0", "text/event-stream")
