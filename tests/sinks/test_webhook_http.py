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
from support.sinks.webhook import HastyWebhookSink, hasty, shows_no_secret
from urllib3 import HTTPConnectionPool

from sinks.base import SinkError
from sinks.http.client import HttpLimits
from sinks.testing import sample_record


def failure(sink: HastyWebhookSink) -> str:
    """What a delivery that is not acknowledged says; no secret is in it."""
    with pytest.raises(SinkError) as caught:
        sink.deliver([sample_record()])
    assert type(caught.value) is SinkError
    assert shows_no_secret(f"{caught.value!r} {caught.value}")
    return str(caught.value)


@pytest.mark.parametrize(
    ("mode", "said"),
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
def test_a_receiver_that_misbehaves_is_told_in_words(
    server: HttpServer, mode: Mode, said: str
) -> None:
    """Each way not to answer is an error in our own words, soon, and the next delivery is fine."""
    sink = hasty(server)
    server.answer(status=200, mode=mode)
    began = time.monotonic()
    told = failure(sink).removeprefix(f"{server.origin}: ")
    if sys.platform == "win32" and mode == "reset":  # Wine's reset may look like an end
        assert told in (said, "the connection ended before an answer came")
    else:
        assert told == said
    assert time.monotonic() - began < 8
    sink.deliver([sample_record()])


def test_close_ends_the_connection(server: HttpServer) -> None:
    """At once, also while something refers to its pool, as a traceback in a cycle does."""
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
    """2xx is the acknowledgement, and 503 is a refusal: a body that never ends costs a connection
    and no time, and leaves no thread, also where no length bounds it.
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
    """A receiver that only ever says 1xx holds nobody longer than the total time."""
    sink = hasty(server)
    server.answer(status=102, mode="interim", every=0.01)
    assert failure(sink) == f"{server.origin}: no answer within 2.5 s"


def test_a_connection_is_kept(server: HttpServer) -> None:
    """Small answers leave the connection open for the next record; beyond a few kilobytes, a new
    connection is cheaper than reading on.
    """
    sink = hasty(server)
    server.answer(status=200, body=b"ok")
    server.answer(status=202, body=b"x" * 4096)
    server.answer(status=200, body=b"x" * 2_000_000)
    for n in range(1, 5):
        sink.deliver([sample_record(n)])
    assert [request.connection for request in server.requests()] == [1, 1, 1, 2]


def test_abort_ends_a_delivery_that_is_stuck(server: HttpServer) -> None:
    """The watchdog's call cuts the connection, and the thread comes free."""

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
    """Time that ran out before there was a socket still ends the delivery."""

    class Late(HastyWebhookSink):
        LIMITS = HttpLimits(read=60, total=0.0)

    quick = hasty(server)
    server.answer(mode="drip-headers")
    assert "no answer within 0 s" in failure(Late("ops", quick.settings, quick.context))


def test_nobody_listens(server: HttpServer) -> None:
    """A refused connection names what to look at."""
    sink = hasty(server)
    server.stop()
    assert failure(sink) == (
        f"{server.origin}: the connection was refused; see that the receiver runs"
    )


def test_a_name_that_is_not_known(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that DNS does not know is told as that."""

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
    """A receiver that drips, hangs or resets within TLS holds nobody."""
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
    ("days", "address", "said"),
    [
        (-1, "127.0.0.1", "certificate has expired"),
        (30, "127.0.0.2", "IP address mismatch"),
        (30, None, "unable to get local issuer certificate; renew it, or name its authority in"),
    ],
)
def test_a_certificate_that_is_not_trusted(
    ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch, days: int, address: str | None, said: str
) -> None:
    """One that has expired, that names another host, or that no known authority signed."""
    if address:
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    with HttpServer(tls=ca.server(days=days, addresses=[address or "127.0.0.1"])) as secured:
        message = failure(hasty(secured))
        assert message.startswith(f"{secured.origin}: its certificate is not trusted: ")
        assert said in message
        assert secured.requests() == []


def test_https_to_a_port_without_tls(server: HttpServer) -> None:
    """A port that does not speak TLS is told as that."""
    url = server.origin.replace("http:", "https:") + "/services/hidden"
    assert "see that the port speaks TLS" in failure(hasty(server, url=url))


def test_a_bundle_that_cannot_be_read_is_told(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that names a bundle that is not there is named."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    url = server.origin.replace("http:", "https:")
    assert "REQUESTS_CA_BUNDLE names" in failure(hasty(server, url=url))


def test_the_proxy_of_the_environment_is_used(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a company's proxy, the request goes to the proxy."""
    monkeypatch.setenv("http_proxy", server.origin)
    hasty(server, url="http://hooks.invalid/x").deliver([sample_record()])
    assert [request.target for request in server.requests()] == ["http://hooks.invalid/x"]


def test_no_proxy_is_honoured(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that NO_PROXY names is reached directly."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    hasty(server).deliver([sample_record()])
    assert len(server.requests()) == 1


def test_a_proxy_that_refuses_is_told_apart(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trouble with the proxy is not blamed on the receiver; its password is not shown."""
    monkeypatch.setenv("https_proxy", server.origin.replace("://", "://me:hunter2@"))
    server.answer(status=407)
    message = failure(hasty(server, url="https://hooks.invalid/x"))
    assert message.startswith("https://hooks.invalid: the proxy that HTTPS_PROXY")
    assert message.endswith("it answered 407")
    assert "hunter2" not in message


def test_netrc_does_not_leak(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that .netrc holds for the host is not sent along."""
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
    """At the most talkative level, no library writes the address into a log."""
    caplog.set_level(logging.DEBUG)
    sink = hasty(server)
    sink.deliver([sample_record(1)])
    server.answer(status=200, mode="garbage")
    failure(sink)
    assert shows_no_secret(caplog.text)
