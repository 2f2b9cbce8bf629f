"""Commands over HTTPS: the long poll, its reaction to each answer, and its settings."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from support.eventually import eventually
from support.mqtt.commands import CommandTaker
from support.sinks.http_server import HttpServer, Mode
from support.sinks.throwaway_ca import ThrowawayCa

from sinks.base import SinkContext, SinkError
from sinks.http.client import HttpLimits
from sinks.kinds.pull import PullSink
from sinks.kinds.pull.poll import MAX_TOKENS, REMEMBERED, HandedIn
from sinks.kinds.pull.settings import PullSettings
from sinks.testing import SAMPLE_VM, sample_context
from wire.command import MAX_TOKEN_BYTES

PATH = "/fleet/path-that-is-secret"
TOKEN = "token-that-is-secret"
PATIENCE = 10.0


class HastyPullSink(PullSink):
    """The sink with time limits that are short enough for a test."""

    LIMITS: ClassVar[HttpLimits] = HttpLimits(connect=2.0, read=1.0, total=1.5)
    STOP_SECONDS: ClassVar[float] = 5.0


def settings(url: str, **others: Any) -> PullSettings:
    """Return settings with a token."""
    return PullSettings.model_validate({"kind": "pull", "url": url, "token": TOKEN, **others})


def make(server: HttpServer, source: CommandTaker | None = None, **others: Any) -> HastyPullSink:
    """Return a sink that polls this server, not yet open."""
    context: SinkContext = replace(sample_context(), command=source or CommandTaker())
    return HastyPullSink("pull", settings(f"{server.origin}{PATH}", **others), context)


@contextmanager
def polling(server: HttpServer, source: CommandTaker, **others: Any) -> Iterator[HastyPullSink]:
    """An open sink."""
    sink = make(server, source, **others)
    sink.open()
    try:
        yield sink
    finally:
        sink.close()


def tell(server: HttpServer, *tokens: str, **others: Any) -> None:
    """Queue an answer with these tokens."""
    server.answer(status=200, body=json.dumps(tokens).encode(), **others)


def trouble(sink: PullSink) -> SinkError:
    """Return the error that `maintain` raises, as soon as it does."""
    raised: list[SinkError] = []

    def has_raised() -> bool:
        try:
            sink.maintain()
        except SinkError as error:
            raised.append(error)
        return bool(raised)

    eventually(has_raised, what="it")
    return raised[0]


def opening_fails(sink: PullSink) -> SinkError:
    """Return the error that `maintain` raises after opening; it contains no secret."""
    sink.open()
    with pytest.raises(SinkError) as caught:
        sink.maintain()
    sink.close()
    shown = f"{caught.value!r} {caught.value}"
    assert not [word for word in ("that-is-secret", PATH) if word in shown]
    return caught.value


def test_what_is_asked(server: HttpServer) -> None:
    """The first request does not wait; the later ones let the server wait."""
    with polling(server, CommandTaker()):
        eventually(lambda: len(server.requests()) >= 2, what="it")
        first, second = server.requests()[:2]
    assert [f"{PATH}?vm={SAMPLE_VM.vm_id}&wait={wait}" for wait in (0, 25)] == [
        first.target,
        second.target,
    ]
    assert (first.method, first.headers["authorization"]) == ("GET", f"Bearer {TOKEN}")
    assert first.connection == second.connection


def test_commands_are_handed_in(server: HttpServer) -> None:
    """The commands of the first request and of the long poll are handed in, in order, under the
    sink's name.
    """
    source = CommandTaker()
    tell(server, "a.b.c", "d.e.f")
    tell(server, "g.h.i")
    with polling(server, source):
        messages = source.wait_for(3)
    assert source.tokens == [b"a.b.c", b"d.e.f", b"g.h.i"]
    assert {("pull", False)} == {(each.channel, each.retained) for each in messages}


def test_commands_wait_for_room(server: HttpServer) -> None:
    """While the bridge has too many commands, the poll keeps its own and requests no more."""
    source = CommandTaker()
    source.full = True
    tell(server, "a.b.c")
    with polling(server, source) as sink:
        source.wait_for_tries(3)
        assert len(server.requests()) == 1
        source.full = False
        source.wait_for(1)
        sink.maintain()
    assert source.tokens == [b"a.b.c"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"status": 401},
            "401 Unauthorized; see that SEB_COMMANDS__PULL_TOKEN or its file is what",
        ),
        ({"status": 403}, "403 Forbidden; see that SEB_COMMANDS__PULL_TOKEN"),
        ({"status": 404}, "404 Not Found; see that SEB_COMMANDS__PULL_URL is right"),
        ({"status": 410}, "410 Gone"),
        ({"status": 500}, "500 Internal Server Error"),
        ({"status": 206}, "206 Partial Content"),
        ({"status": 799}, "799"),
        ({"status": 302, "headers": {"Location": "https://other.example/x?y"}}, "302 Found"),
        ({"status": 200, "body": b"x" * 2_000_000}, ""),
    ],
)
def test_any_other_answer_is_a_sink_error(
    server: HttpServer, answer: dict[str, Any], expected: str
) -> None:
    """Any other answer is an error that names it and what to check; the bearer token is not sent to
    the target of a redirect.
    """
    server.answer(**answer)
    problem = str(opening_fails(make(server)))
    assert problem.startswith(f"{server.origin} answered {expected}" if expected else server.origin)
    if answer["status"] == 302:
        assert "not followed; it points to https://other.example:" in problem
    assert expected or "its answer is larger than" in problem
    assert len(server.requests()) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"tokens": []}',
        b'"a.b.c"',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_list_of_tokens_is_a_sink_error(server: HttpServer, body: bytes) -> None:
    """A body that is not a list of tokens is an error, and nothing of it is handed in."""
    source = CommandTaker()
    server.answer(status=200, body=body)
    problem = str(opening_fails(make(server, source)))
    assert "not a JSON list of tokens" in problem
    assert source.messages == ()


def test_tokens_above_the_limit_come_with_the_next_answers(server: HttpServer) -> None:
    """Of a long list the first tokens are read; the others come with the next answers."""
    source = CommandTaker()
    tokens = [f"a.b.{number}" for number in range(2 * MAX_TOKENS + 1)]
    for _ in range(3):
        tell(server, *tokens)
    with polling(server, source) as sink:
        source.wait_for(len(tokens))
        sink.maintain()
        assert len(server.requests()) >= 3
    assert source.tokens == [token.encode() for token in tokens]


def test_an_invalid_token_does_not_affect_the_others(server: HttpServer) -> None:
    """An invalid entry of the list is handed in for the verifier to count, and the other tokens are
    handed in.
    """
    source = CommandTaker()
    server.answer(status=200, body=b'["a.b.c", 1, null, {}, [["x"]], "d.e.f"]')
    with polling(server, source) as sink:
        source.wait_for(3)
        sink.maintain()
    assert source.tokens == [b"a.b.c", b"", b"d.e.f"]


def test_a_copy_of_a_token_is_ignored_for_a_time(server: HttpServer) -> None:
    """A copy of a token is ignored for a time, as the server repeats it until it has the receipt;
    while only copies come, the poll is no more frequent.
    """
    source = CommandTaker()
    began = time.monotonic()
    for _ in range(4):
        tell(server, "a.b.c", "a.b.c")
    tell(server, "a.b.c", "d.e.f")
    sink = make(server, source)
    sink.handed_in = HandedIn(lambda: 0.0)
    sink.open()
    source.wait_for(2)
    assert time.monotonic() - began > 2.0
    sink.close()
    for _ in range(3):  # the server may give the first to the connection that was just cut
        tell(server, "d.e.f", "g.h.i")
    sink.open()
    source.wait_for(3)
    sink.close()
    assert source.tokens == [b"a.b.c", b"d.e.f", b"g.h.i"]


def test_a_token_that_was_not_taken_counts_at_once(server: HttpServer) -> None:
    """A token that the bridge had no room for when the connection ended is handed in at once when
    it comes again.
    """
    source = CommandTaker()
    source.full = True
    tell(server, "a.b.c")
    with polling(server, source) as sink:
        source.wait_for_tries(1)
        sink.close()
        source.full = False
        tell(server, "a.b.c")
        sink.open()
        source.wait_for(1)
    assert source.tokens == [b"a.b.c"]


def test_each_copy_counts_after_a_longer_while() -> None:
    """After a growing time a copy is handed in and answered like a replay, because the server may
    have lost the receipt.
    """
    now = [0.0]
    handed_in = HandedIn(lambda: now[0])
    taken = []
    for second in range(300):
        now[0] = float(second)
        if handed_in.is_due(b"a.b.c"):
            handed_in.add(b"a.b.c")
            taken.append(second)
    assert taken == [0, 10, 30, 70, 130, 190, 250]


def test_not_every_token_is_remembered_for_ever() -> None:
    """The sink remembers a limited number of tokens."""
    handed_in = HandedIn(lambda: 0.0)
    for number in range(REMEMBERED + 1):
        handed_in.add(b"%d" % number)
    assert [handed_in.is_due(b"0"), handed_in.is_due(b"1")] == [True, False]


@pytest.mark.parametrize(
    ("body", "token"),
    [
        (b'["%s"]' % (b"x" * 100_000), b"x" * (MAX_TOKEN_BYTES + 1)),
        (b'["\\ud800.b.c"]', b"?.b.c"),
    ],
    ids=["one byte too many is enough", "half a surrogate pair"],
)
def test_an_odd_token_is_for_the_verifier_to_refuse(
    server: HttpServer, body: bytes, token: bytes
) -> None:
    """An odd token is handed in as it is, and of a token that is too long only the front."""
    source = CommandTaker()
    server.answer(status=200, body=body)
    with polling(server, source):
        source.wait_for(1)
    assert source.tokens == [token]


@pytest.mark.parametrize(
    "mode", ["endless", "drip-body", "drip-close", "drip-headers", "silence", "garbage"]
)
def test_an_answer_without_end_ends(server: HttpServer, mode: Mode) -> None:
    """An answer without an end is cut at the limits, with an error in this project's own words."""
    began = time.monotonic()
    server.answer(status=200, mode=mode, headers={"Content-Length": "9000"})
    assert str(opening_fails(make(server))).startswith(f"{server.origin}: ")
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.001", 1.0), ("soon", None)])
def test_retry_after_is_passed_on(server: HttpServer, header: str, seconds: float | None) -> None:
    """The error has the server's Retry-After, at least a second, so that the worker waits that
    long.
    """
    server.answer(status=503, headers={"Retry-After": header})
    assert opening_fails(make(server)).retry_after == seconds


def test_one_lost_connection_is_no_trouble(server: HttpServer) -> None:
    """A connection that is cut once is no error, and the next request brings the commands."""
    source = CommandTaker()
    server.answer()
    server.answer(mode="close")
    tell(server, "a.b.c")
    with polling(server, source) as sink:
        source.wait_for(1)
        sink.maintain()


def test_lasting_trouble_is_raised_by_maintain(server: HttpServer) -> None:
    """`maintain` raises an error that lasts, and the sink works again after `close` and `open`."""
    sink = make(server)
    sink.open()
    server.stop()
    assert "the connection" in str(trouble(sink))
    sink.close()
    opening_fails(sink)
    server.start()
    sink.open()
    sink.maintain()
    sink.close()


def test_a_bug_behind_the_poll_is_raised_by_maintain(server: HttpServer) -> None:
    """`maintain` raises the exception that has ended the thread, and does not blame the server."""

    def broken(_: object) -> bool:
        raise KeyError("a bug")

    tell(server, "a.b.c")
    sink = HastyPullSink("pull", make(server).settings, replace(sample_context(), command=broken))
    sink.open()

    def raises_key_error() -> bool:
        try:
            sink.maintain()
        except KeyError:
            return True
        return False

    eventually(raises_key_error, what="it")
    sink.close()


def test_a_server_that_does_not_wait_is_not_hammered(server: HttpServer) -> None:
    """A server that answers at once without a command is polled once a second at most."""
    began = time.monotonic()
    with polling(server, CommandTaker()):
        eventually(lambda: len(server.requests()) >= 4, what="it")
    assert time.monotonic() - began > 1.8


@pytest.mark.parametrize("end", [PullSink.close, PullSink.abort])
def test_the_poll_ends_at_once(server: HttpServer, end: Callable[[PullSink], None]) -> None:
    """`close` ends the poll at once while the server holds its answer, and no command is handed in
    after that.
    """
    source = CommandTaker()
    patient = PullSink("pull", make(server).settings, replace(sample_context(), command=source))
    server.answer()
    server.answer(mode="silence")
    patient.open()
    eventually(lambda: len(server.requests()) == 2, what="it")
    (thread,) = [each for each in threading.enumerate() if each.name == "pull pull"]
    began = time.monotonic()
    end(patient)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert time.monotonic() - began < 10
    patient.close()


def test_check_sends_no_request(server: HttpServer) -> None:
    """`check` sends no request, which would take commands away from the bridge."""
    assert [line.level for line in make(server).check()] == ["ok"]
    assert not server.requests()


def test_check_warns_of_a_missing_token(server: HttpServer) -> None:
    """`check` warns if no token is set, because the server cannot identify the VM."""
    (warning, _) = make(server, token=None).check()
    assert (warning.level, "SEB_COMMANDS__PULL_TOKEN" in (warning.remedy or "")) == ("warn", True)


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll works over TLS with a certificate that the system trusts."""
    ca = ThrowawayCa(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    source = CommandTaker()
    with HttpServer(tls=ca.server()) as secured:
        tell(secured, "a.b.c")
        with polling(secured, source):
            source.wait_for(1)


def test_the_token_may_change_in_its_file(server: HttpServer, tmp_path: Path) -> None:
    """The token's file is read for each request; the error about an empty one names the file, and
    nothing is sent.
    """
    file = tmp_path / "token"
    file.write_text("two words that are no token")
    problem = str(opening_fails(make(server, token=None, token_file=str(file))))
    assert (f"the secret file {file} holds no bearer token" in problem, server.requests()) == (
        True,
        [],
    )
    file.write_text("old\n")

    def sent() -> list[str]:
        return [request.headers["authorization"] for request in server.requests()]

    with polling(server, CommandTaker(), token=None, token_file=str(file)):
        assert sent()[0] == "Bearer old"
        file.write_text("new\n")
        eventually(lambda: sent()[-1] == "Bearer new", what="it")


@pytest.mark.parametrize("url", ["http://localhost:1/x", "http://127.0.0.1/x", "https://x/"])
def test_valid_addresses(url: str) -> None:
    """An address with TLS is valid, and one without TLS if it is loopback."""
    assert settings(url).address == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://control.example/x", "this must be https"),
        ("https://me:word@control.example/x", "use PULL_TOKEN"),
        ("https://control.example/x?vm=1", "ends with its path"),
        ("https://control.example/x#y", "ends with its path"),
        ("https://control.example/x?", "ends with its path"),
        ("ftp://control.example/x", "not an address"),
        ("control.example", "not an address"),
    ],
)
def test_invalid_addresses(url: str, expected: str) -> None:
    """An invalid address is refused at the start, and not shown."""
    with pytest.raises(ValidationError) as caught:
        settings(url)
    assert expected in str(caught.value)
    assert "control.example" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "caf\u00e9"])
def test_a_token_that_no_header_can_hold(token: str) -> None:
    """A token that no header can hold is refused, and not shown."""
    with pytest.raises(ValidationError) as caught:
        settings("https://x/", token=token)
    assert "a single word of ASCII" in str(caught.value)
    assert not token or token not in str(caught.value)
