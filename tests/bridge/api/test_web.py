"""What every answer over HTTP has, and which requests are refused."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from support.documents.documents import body, entry
from support.page.monitored_bridge import MonitoredBridge, ask

from bridge.api.event_stream import MAX_STREAMS
from bridge.api.web import Web, is_ours, page_policy

PATHS = ("/", "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/events")


@pytest.fixture
def stage(stage: MonitoredBridge) -> MonitoredBridge:
    """A bridge that has polled once, and found an event."""
    stage.begin()
    stage.poll(body(entry()))
    return stage


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_security_headers(stage: MonitoredBridge, path: str) -> None:
    """Every answer forbids sniffing, frames, caches and referrers, and everything that its content
    policy does not name.
    """
    reply = stage.get(path)
    assert reply.code == 200
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["X-Frame-Options"] == "DENY"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Set-Cookie" not in reply.headers
    assert int(reply.headers["Content-Length"]) == len(reply.body)


@pytest.mark.parametrize("path", PATHS)
def test_head_tells_the_length_and_no_more(stage: MonitoredBridge, path: str) -> None:
    """HEAD is answered like GET, with the length and without the body."""
    reply = stage.get(path, method="HEAD")
    assert (reply.code, reply.body) == (200, b"")
    assert int(reply.headers["Content-Length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(stage: MonitoredBridge, method: str) -> None:
    """Every method but GET and HEAD is refused on every path."""
    for path in PATHS:
        reply = stage.get(path, method=method)
        assert (reply.code, reply.headers["Allow"]) == (405, "GET, HEAD")


def test_an_unknown_path_says_what_there_is(stage: MonitoredBridge) -> None:
    """An unknown path is answered with 404 and the list of paths."""
    for path in ("/nothing", "/api/v1/status/", "//", "/static/index.html", "/../etc/passwd"):
        reply = stage.get(path)
        assert reply.code == 404
        assert "/metrics" in reply.json()["error"]


@pytest.mark.parametrize(
    ("host", "listen", "ours"),
    [
        ("127.0.0.1:9469", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost:8080", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("localhost.:9469", "127.0.0.1", True),
        ("[::1]:9469", "127.0.0.1", True),
        ("[::1]:9469", "::1", True),
        ("10.1.2.3:9469", "10.1.2.3", True),
        ("10.1.2.3:9469", "0.0.0.0", True),
        ("[fd00::7]:9469", "::", True),
        ("10.1.2.4:9469", "10.1.2.3", False),
        ("10.1.2.3:9469", "127.0.0.1", False),
        ("169.254.169.254", "127.0.0.1", False),
        ("evil.example", "127.0.0.1", False),
        ("evil.example:9469", "0.0.0.0", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example", "0.0.0.0", False),
        ("evil.example@127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1:9469, evil.example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("2130706433", "127.0.0.1", False),
        ("0x7f.1", "127.0.0.1", False),
    ],
)
def test_only_its_own_address_is_answered(host: str, listen: str, *, ours: bool) -> None:
    """A request with a Host that is not the server's own is refused."""
    assert is_ours(host, listen) == ours


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("seb.example", 200),
        ("SEB.example.:9469", 200),
        ("127.0.0.1", 200),
        ("other.example", 421),
        ("evil.seb.example", 421),
    ],
)
def test_a_name_that_was_given_is_answered(stage: MonitoredBridge, host: str, code: int) -> None:
    """A request with a configured name is answered; the whole name counts, without regard to
    case.
    """
    web = Web(stage.status, stage.metrics, host="127.0.0.1", names=["Seb.example"])
    assert ask(web, "/healthz", host=host).code == code


def test_a_foreign_host_learns_nothing(stage: MonitoredBridge) -> None:
    """The refusal of a foreign Host does not depend on whether the path exists."""
    for path in (*PATHS, "/nothing"):
        reply = stage.get(path, host="evil.example")
        assert reply.code == 421
        assert stage.parts.current.observer.vm.vm_id.encode() not in reply.body


def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    """The hashes in the content policy are those of the page's one script and one style."""
    page = files("bridge.api").joinpath("static", "index.html").read_bytes()
    policy = page_policy(page)
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>".encode(), page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


def test_records_are_the_bytes_that_were_committed(stage: MonitoredBridge) -> None:
    """Records are answered in order, as committed, with the newest sequence of the store."""
    reply = stage.get("/api/v1/events")
    for record in stage.records():
        assert record.body in reply.body
    told = reply.json()
    assert told["stream"] == stage.store.stream
    assert told["lastSequence"] == stage.store.last_record_sequence
    assert told["records"] == [json.loads(record.body) for record in stage.records()]


def test_a_reader_pages_by_sequence(stage: MonitoredBridge) -> None:
    """A reader gets all records page by page with `after` and `limit`."""
    for number in range(5):
        stage.poll(body(entry(f"e{number}")))
    seen, after = list[str](), 0
    while page := stage.get(f"/api/v1/events?limit=2&after={after}").json()["records"]:
        seen += [record["id"] for record in page]
        after = int(page[-1]["sequence"])
    assert seen == [record.id for record in stage.records()]


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "after=", "after=1e9"])
def test_a_query_that_makes_no_sense_is_refused(stage: MonitoredBridge, query: str) -> None:
    """A query with an invalid value is refused, and the answer says what is valid."""
    reply = stage.get(f"/api/v1/events?{query}")
    assert reply.code == 400
    assert "whole number" in reply.json()["error"]


@pytest.mark.parametrize("query", ["limit=100000", "after=99999999999999999999", "else=1"])
def test_a_query_beyond_the_limits_is_cut_to_them(stage: MonitoredBridge, query: str) -> None:
    """A `limit` above the largest is reduced to it."""
    assert stage.get(f"/api/v1/events?{query}").code == 200


def test_too_many_followers_are_sent_away(stage: MonitoredBridge) -> None:
    """A stream above the limit is refused, with a hint at the answer without a stream."""
    for _ in range(MAX_STREAMS):
        assert stage.get("/api/v1/events", accept="text/event-stream").code == 200
    reply = stage.get("/api/v1/events", accept="text/event-stream")
    assert reply.code == 503
    assert "without text/event-stream" in reply.json()["error"]


def test_before_the_vm_is_known_there_are_no_records(tmp_path: Path) -> None:
    """Before the VM identity is known, the list of records is empty, and no stream can be
    opened.
    """
    stage = MonitoredBridge(tmp_path)
    assert stage.get("/api/v1/events").json()["records"] == []
    assert stage.get("/api/v1/events", accept="text/event-stream").code == 503
    assert stage.get("/").code == 200
    stage.close()
