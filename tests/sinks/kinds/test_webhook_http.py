"""The webhook sink with receivers and proxies that misbehave."""

import gc
import logging
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from support.eventually import eventually
from support.sinks.http_server import HttpServer, Mode
from support.sinks.throwaway_ca import ThrowawayCa
from support.sinks.webhook import PATH, HastyWebhookSink, hasty, shows_no_secret
from urllib3 import HTTPConnectionPool

from sinks.base import SinkError
from sinks.http.client import HttpClient, HttpLimits
from sinks.testing import sample_record


def failure(sink: HastyWebhookSink) -> str:
    """Return the message of a failed delivery; no secret is in it."""
    with pytest.raises(SinkError) as caught:
        sink.deliver([sample_record()])
    assert type(caught.value) is SinkError
    assert shows_no_secret(f"{caught.value!r} {caught.value}")
    return str(caught.value)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("silence", "no answer in time"),
        ("deaf", "no answer in time"),
        ("reset", "the connection was reset"),
        ("close", "the connection ended before an answer came"),
        ("garbage", "the connection ended before an answer came"),
        ("drip-headers", "no answer within 2.5 s"),
        ("cut-headers", "the connection ended before an answer came"),
        ("cut-line", "the connection ended before an answer came"),
    ],
)
def test_each_misbehaviour_of_a_receiver_is_an_error_in_words(
    server: HttpServer, mode: Mode, expected: str
) -> None:
    """Each way not to answer is an error in this project's own words, within the time limit, and
    the next delivery succeeds.
    """
    sink = hasty(server)
    server.answer(status=200, mode=mode)
    began = time.monotonic()
    told = failure(sink).removeprefix(f"{server.origin}: ")
    if sys.platform == "win32" and mode == "reset":  # Wine's reset may look like an end
        assert told in (expected, "the connection ended before an answer came")
    else:
        assert told == expected
    assert time.monotonic() - began < 8
    sink.deliver([sample_record()])


def test_close_ends_the_connection(server: HttpServer) -> None:
    """`close` ends the connection at once, also while a traceback refers to its pool."""
    sink = hasty(server)
    sink.deliver([sample_record()])
    held = [each for each in gc.get_objects() if isinstance(each, HTTPConnectionPool)]
    sink.close()
    eventually(lambda: server.open_connections() == 0, what="no connection")
    assert held


@pytest.mark.parametrize("mode", ["drip-body", "endless", "drip-close"])
@pytest.mark.parametrize("secured", [False, True])
def test_a_body_without_end_is_not_waited_for(
    ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch, mode: Mode, *, secured: bool
) -> None:
    """The status alone decides (2xx acknowledges, 503 refuses): a body without an end costs a
    connection, and no time and no thread.
    """
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    with HttpServer(tls=ca.server() if secured else None) as server:
        sink = hasty(server)
        before = threading.active_count()
        length = {} if mode == "drip-close" else {"Content-Length": "9000"}
        server.answer(status=200, mode=mode, headers=length, every=0.01)
        server.answer(status=503, mode=mode, headers=length, every=0.01)
        began = time.monotonic()
        sink.deliver([sample_record(1)])
        assert failure(sink) == f"{server.origin} answered 503 Service Unavailable"
        sink.deliver([sample_record(2)])
        assert time.monotonic() - began < 8
        assert [request.connection for request in server.requests()] == [1, 2, 3]
        sink.close()
        eventually(lambda: server.open_connections() == 0, what="no connection")
        assert threading.active_count() == before


@pytest.mark.parametrize("interim", [(102,), (103,), (100, 103, 103, 102)])
def test_interim_answers_are_read_past(server: HttpServer, interim: tuple[int, ...]) -> None:
    """The final status decides, whatever 1xx answers come before it (RFC 9110, 15.2)."""
    sink = hasty(server)
    server.answer(status=200, interim=interim, body=b"ok")
    sink.deliver([sample_record(1)])
    server.answer(status=503, interim=interim)
    assert failure(sink) == f"{server.origin} answered 503 Service Unavailable"
    sink.deliver([sample_record(2)])
    assert [request.connection for request in server.requests()] == [1, 1, 1]


def test_interim_answers_without_end_are_cut(server: HttpServer) -> None:
    """A receiver that sends only 1xx answers is cut at the total time limit."""
    sink = hasty(server)
    server.answer(status=102, mode="interim", every=0.01)
    assert failure(sink) == f"{server.origin}: no answer within 2.5 s"


def test_a_connection_is_kept(server: HttpServer) -> None:
    """The connection is kept after a small answer, and closed after one of more than a few
    kilobytes.
    """
    sink = hasty(server)
    server.answer(status=200, body=b"ok")
    server.answer(status=202, body=b"x" * 4096)
    server.answer(status=200, body=b"x" * 2_000_000)
    for n in range(1, 5):
        sink.deliver([sample_record(n)])
    assert [request.connection for request in server.requests()] == [1, 1, 1, 2]


def test_a_connection_that_was_idle_is_not_used_again(server: HttpServer) -> None:
    """After a longer time without a request a new connection is made: a firewall in between may
    have forgotten the old one.
    """
    limits = HttpLimits(idle=0.0)
    client = HttpClient(f"{server.origin}{PATH}", limits, shown=server.origin)
    for _ in range(2):
        assert client.post(b"{}", {}).status == 204
    client.close()
    assert [request.connection for request in server.requests()] == [1, 2]


def test_abort_ends_a_delivery_that_is_stuck(server: HttpServer) -> None:
    """`abort` cuts the connection, and the thread of the stuck delivery ends."""

    class Patient(HastyWebhookSink):
        LIMITS = HttpLimits(read=60, total=60)

    quick = hasty(server)
    sink = Patient("ops", quick.settings, quick.context)
    server.answer(mode="silence")
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(failure(sink)))
    thread.start()
    eventually(lambda: bool(server.requests()), what="the request")
    sink.abort()
    thread.join(5)
    assert said == [f"{server.origin}: the delivery was cut off"]


def test_a_time_that_is_up_while_connecting(server: HttpServer) -> None:
    """A time limit that passes before there is a socket ends the delivery."""

    class Late(HastyWebhookSink):
        LIMITS = HttpLimits(read=60, total=0.0)

    quick = hasty(server)
    server.answer(mode="drip-headers")
    assert "no answer within 0 s" in failure(Late("ops", quick.settings, quick.context))


def test_a_refused_connection(server: HttpServer) -> None:
    """The error about a refused connection says what to check."""
    sink = hasty(server)
    server.stop()
    assert failure(sink) == (
        f"{server.origin}: the connection was refused; see that the receiver runs"
    )


def test_an_unknown_host(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about a host that DNS does not know says so."""

    def unknown(*arguments: object, **named: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    sink = hasty(server, url="https://hooks.invalid/services/hidden?code=hidden")
    assert failure(sink) == (
        "https://hooks.invalid: its host name cannot be resolved;"
        " see that the name is right and DNS works"
    )


@pytest.mark.parametrize("mode", ["silence", "drip-headers", "reset"])
def test_tls_can_be_cut_too(ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    """A receiver that is slow, hangs or resets within TLS is cut at the time limit."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca.cert))
    with HttpServer(tls=ca.server()) as secured:
        secured.answer(mode=mode)
        sink = hasty(secured)
        began = time.monotonic()
        assert failure(sink).startswith(f"{secured.origin}: ")
        assert time.monotonic() - began < 8
        sink.deliver([sample_record()])
        sink.close()


@pytest.mark.parametrize(
    ("days", "address", "expected"),
    [
        (-1, "127.0.0.1", "certificate has expired"),
        (30, "127.0.0.2", "IP address mismatch"),
        (30, None, "unable to get local issuer certificate; renew it, or name its authority in"),
    ],
)
def test_a_certificate_that_is_not_trusted(
    ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch, days: int, address: str | None, expected: str
) -> None:
    """A certificate that has expired, names another host or has an unknown authority is an error
    that says so.
    """
    if address:
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    with HttpServer(tls=ca.server(days=days, addresses=[address or "127.0.0.1"])) as secured:
        message = failure(hasty(secured))
        assert message.startswith(f"{secured.origin}: its certificate is not trusted: ")
        assert expected in message
        assert secured.requests() == []


def test_https_to_a_port_without_tls(server: HttpServer) -> None:
    """The error about a port without TLS says so."""
    url = server.origin.replace("http:", "https:") + "/services/hidden"
    assert "see that the port speaks TLS" in failure(hasty(server, url=url))


def test_a_bundle_that_cannot_be_read_is_named(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable whose bundle of authorities is missing."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    url = server.origin.replace("http:", "https:")
    assert "REQUESTS_CA_BUNDLE names" in failure(hasty(server, url=url))


def test_the_proxy_of_the_environment_is_used(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request goes through the proxy that the environment names."""
    monkeypatch.setenv("http_proxy", server.origin)
    hasty(server, url="http://hooks.invalid/x").deliver([sample_record()])
    assert [request.target for request in server.requests()] == ["http://hooks.invalid/x"]


def test_no_proxy_is_honoured(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that NO_PROXY names is reached directly."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    hasty(server).deliver([sample_record()])
    assert len(server.requests()) == 1


def test_a_proxy_that_refuses_is_named(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about a proxy names the proxy and not the receiver, without a password."""
    monkeypatch.setenv("https_proxy", server.origin.replace("://", "://me:hunter2@"))
    server.answer(status=407)
    message = failure(hasty(server, url="https://hooks.invalid/x"))
    assert message.startswith("https://hooks.invalid: the proxy that HTTPS_PROXY")
    assert message.endswith("it answered 407")
    assert "hunter2" not in message


def test_netrc_does_not_leak(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in .netrc for the host is not sent."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    hasty(server, headers={}).deliver([sample_record()])
    assert "authorization" not in server.requests()[0].headers


def test_cookies_are_not_kept(server: HttpServer) -> None:
    """A cookie of one answer is not sent with the next request."""
    sink = hasty(server)
    server.answer(status=200, headers={"Set-Cookie": "a=b; Path=/"})
    sink.deliver([sample_record(1)])
    sink.deliver([sample_record(2)])
    assert ["cookie" in request.headers for request in server.requests()] == [False, False]


def test_nothing_is_logged(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    """No library logs the address, at any log level."""
    caplog.set_level(logging.DEBUG)
    sink = hasty(server)
    sink.deliver([sample_record(1)])
    server.answer(status=200, mode="garbage")
    failure(sink)
    assert shows_no_secret(caplog.text)
