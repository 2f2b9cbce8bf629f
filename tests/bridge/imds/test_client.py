"""The requests to IMDS, and what the client makes of each answer."""

import gzip
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter

import pytest
import requests
from support.documents.documents import FakeClock
from support.imds.raw_imds import RawImds, refusal, reply
from support.sinks.http_server import HttpServer, Mode
from support.sinks.throwaway_ca import ThrowawayCa
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from bridge.config.settings import Settings
from bridge.imds.api_versions import INSTANCE_VERSIONS_TRIED, MAX_REFUSALS, PROBE_EVERY_REQUESTS
from bridge.imds.client import MAX_RETRY_AFTER, Imds, ImdsError
from bridge.imds.exchange import WithheldError, explain
from bridge.known_api_versions import EVENTS_API_VERSIONS, INSTANCE_API_VERSIONS
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import (
    DripBody,
    DripHeaders,
    Endless,
    Fault,
    Huge,
    ResetFault,
    Slow,
    StatusFault,
    Truncated,
)
from bridge.simulator.simulator import Simulator

OLDER, NEWEST = EVENTS_API_VERSIONS[-2:]
Client = Callable[..., Imds]


@pytest.fixture
def client() -> Iterator[Client]:
    """Makes clients, which are closed at the end; with `others` a client has further endpoints."""
    with ExitStack() as stack:

        def make(url: str, *, others: Sequence[str] = (), **timeouts: float) -> Imds:
            patience = {"timeout": 5.0, "first_timeout": 5.0, **timeouts}
            made = Imds(
                url,
                api_version=NEWEST,
                discover=lambda: others,
                timeout=patience["timeout"],
                first_timeout=patience["first_timeout"],
            )
            stack.callback(made.close)
            return made

        yield make


def refused(asked: Imds) -> ImdsError:
    """Return the error of one request for events."""
    with pytest.raises(ImdsError) as caught:
        asked.events()
    return caught.value


def closed_port() -> str:
    """Return the base URL of a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_document_comes_as_it_was_sent(imds_simulator: Simulator, client: Client) -> None:
    """The answer has the document's bytes, and the milliseconds that it took."""
    imds_simulator.serve(b'\xef\xbb\xbf {"Events":[]}\n')
    imds_client = client(imds_simulator.url)
    answer = imds_client.events()
    assert (answer.body, 0 < answer.latency_ms < 5000) == (b'\xef\xbb\xbf {"Events":[]}\n', True)


def test_a_post_that_is_no_longer_allowed_is_not_sent(
    imds_simulator: Simulator, client: Client
) -> None:
    """A POST that is no longer allowed once there is a connection is not sent, the connection is
    closed, and the next POST is sent.
    """
    event = imds_simulator.announce(SimulatedEvent())
    imds_client = client(imds_simulator.url)
    with pytest.raises(WithheldError):
        imds_client.start(event.event_id, may_send=lambda: False)
    assert imds_simulator.approvals == []
    imds_client.start(event.event_id, may_send=lambda: True)
    assert len(imds_simulator.approvals) == 1


def test_a_request_is_one_that_imds_takes(client: Client) -> None:
    """A request has the header and the api-version, and no cookies, credentials or headers of a
    proxy.
    """
    with RawImds(reply(headers=["Set-Cookie: a=b"])) as raw:
        imds_client = client(raw.url)
        imds_client.events()
        imds_client.events()
    line, *headers = raw.requests[1].split("\r\n")
    names = {header.split(":")[0].lower() for header in headers}
    assert (f"GET /metadata/scheduledevents?api-version={NEWEST} HTTP/1.1", True) == (
        line,
        "Metadata: true" in headers,
    )
    assert not names & {"cookie", "authorization", "x-forwarded-for", "via"}


def test_many_polls_share_one_connection(client: Client) -> None:
    """Polls share one connection, so that a poll a second does not cost a handshake a second."""
    with RawImds() as raw:
        imds_client = client(raw.url)
        for _ in range(50):
            imds_client.events()
    assert (len(raw.requests), raw.connections) == (50, 1)


def test_a_connection_that_the_server_closed_is_no_error(client: Client) -> None:
    """A kept connection that the server has closed between two polls is replaced without an
    error.
    """
    with RawImds(closing=True) as raw:
        imds_client = client(raw.url)
        for _ in range(20):
            imds_client.events()
    assert len(raw.requests) >= 20


def test_the_environments_proxies_are_not_asked(
    imds_simulator: Simulator, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """The client uses no proxy, because no proxy can reach the link-local address."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, closed_port())
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    imds_client = client(imds_simulator.url)
    imds_client.events()
    assert imds_simulator.gets == 1


BAD_DAYS: list[tuple[Fault, str]] = [
    (StatusFault(404), "http_404"),
    (StatusFault(405), "http_405"),
    (StatusFault(410), "http_410"),
    (StatusFault(429), "http_429"),
    (StatusFault(500), "http_500"),
    (StatusFault(503), "http_503"),
    (Truncated(), "connection"),
    (Huge(10), "too_large"),
    (Endless(5.0), "too_large"),
]


@pytest.mark.parametrize(("fault", "reason"), BAD_DAYS, ids=str)
def test_each_failure_is_one_error(
    imds_simulator: Simulator, fault: Fault, reason: str, client: Client
) -> None:
    """Each failure is one error with a word for logs and a sentence for people, and the next poll
    succeeds.
    """
    imds_client = client(imds_simulator.url)
    imds_client.events()
    imds_simulator.fault(fault)
    error = refused(imds_client)
    healed = imds_client.events()
    assert (reason, None) == (error.reason, error.retry_after)
    assert 10 < len(str(error)) < 200
    assert b"Events" in healed.body


@pytest.mark.parametrize("fault", [DripBody(0.05), DripHeaders(0.05), Slow(5.0)], ids=str)
def test_a_deadline_is_kept_to_the_last_byte(
    imds_simulator: Simulator, fault: Fault, client: Client
) -> None:
    """A poll ends at its timeout although headers or body arrive byte by byte."""
    imds_client = client(imds_simulator.url, timeout=0.6)
    imds_client.events()
    imds_simulator.fault(fault)
    began = perf_counter()
    error = refused(imds_client)
    took = perf_counter() - began
    assert (error.reason, took < 3) == ("timeout", True)


@pytest.mark.parametrize("mode", ["drip-headers", "drip-body", "drip-close"])
def test_the_deadline_holds_within_tls_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, client: Client
) -> None:
    """The total time limit also holds for an https URL."""
    ca = ThrowawayCa(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    length = {} if mode == "drip-close" else {"Content-Length": "9000"}
    with HttpServer(tls=ca.server()) as server:
        imds_client = client(server.origin, first_timeout=0.6)
        server.answer(status=200, mode=mode, headers=length, every=0.05)
        began = perf_counter()
        assert refused(imds_client).reason == "timeout"
        assert perf_counter() - began < 5


def test_an_interim_answer_is_read_past(client: Client) -> None:
    """A 102 before the document is not the answer (RFC 9110, 15.2)."""
    with RawImds(b"HTTP/1.1 102 Processing\r\n\r\n" + reply(body=b"{}")) as raw:
        imds_client = client(raw.url)
        assert imds_client.events().body == b"{}"


def test_the_first_answer_may_take_longer(imds_simulator: Simulator, client: Client) -> None:
    """The first request may take two minutes, because it can turn the service on."""
    imds_client = client(imds_simulator.url, timeout=0.2, first_timeout=5.0)
    imds_simulator.fault(Slow(0.4))
    imds_client.events()
    imds_simulator.fault(Slow(5.0))
    error = refused(imds_client)
    assert error.reason == "timeout"


def test_after_a_day_asleep_an_answer_may_take_as_long_as_the_first(
    imds_simulator: Simulator,
) -> None:
    """After a suspension of more than a day the service is off, so the next document may take as
    long as the first one; the one after that may not.
    """
    clock = FakeClock()
    asked = Imds(
        imds_simulator.url, api_version=NEWEST, timeout=0.2, first_timeout=5.0, clock=clock
    )
    with closing(asked):
        asked.events()
        clock.suspend(30 * 3600)
        imds_simulator.fault(Slow(0.4))
        asked.events()
        imds_simulator.fault(Slow(5.0))
        assert refused(asked).reason == "timeout"


@pytest.mark.parametrize("body", [b"", b" ", b"{}"])
def test_only_a_document_ends_the_wait_for_the_first(
    imds_simulator: Simulator, client: Client, body: bytes
) -> None:
    """A 200 without events does not end the longer time limit of the first request."""
    imds_client = client(imds_simulator.url, timeout=0.2, first_timeout=5.0)
    imds_simulator.serve(body)
    assert imds_client.events().body == body
    imds_simulator.serve({"DocumentIncarnation": 1, "Events": []})
    imds_simulator.fault(Slow(0.4))
    assert b"Events" in imds_client.events().body


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2", 2.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("86400", MAX_RETRY_AFTER),
        ("inf", MAX_RETRY_AFTER),
        ("nan", None),
        ("-3", None),
        ("soon", None),
        ("Mon, 02 Mar 2026 10:15:00 GMT", None),
    ],
)
def test_retry_after_is_honoured_within_reason(
    said: str, expected: float | None, client: Client
) -> None:
    """Retry-After is read in seconds and limited: a longer pause would use up the notice of a
    Preempt.
    """
    with RawImds(reply("429 Too Many", headers=[f"Retry-After: {said}"])) as raw:
        imds_client = client(raw.url)
        error = refused(imds_client)
    assert (error.reason, error.retry_after) == ("http_429", expected)


@pytest.mark.parametrize("location", ["/elsewhere", "http://127.0.0.1:1/", "\xff\xfe"])
def test_a_redirect_is_not_followed(location: str, client: Client) -> None:
    """A redirect is an error, because IMDS never redirects."""
    answer = reply("302 Found", headers=["Location: X"]).replace(b"X", location.encode("latin-1"))
    with RawImds(answer) as raw:
        imds_client = client(raw.url)
        error = refused(imds_client)
    assert (error.reason, len(raw.requests)) == ("http_302", 1)


NO_HTTP = {
    "no http": b"SSH-2.0-OpenSSH_9.2\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "no gzip": reply(headers=["Content-Encoding: gzip"]),
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    "a bomb": reply(body=gzip.compress(b" " * 50_000_000), headers=["Content-Encoding: gzip"]),
    "nothing": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
}


@pytest.mark.parametrize("answer", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_http_is_an_error_too(answer: bytes, client: Client) -> None:
    """Any bytes that a server sends raise `ImdsError` and nothing else."""
    with RawImds(answer, closing=True) as raw:
        imds_client = client(raw.url)
        reason = refused(imds_client).reason
    assert reason in ("connection", "too_large")


def test_a_refused_connection_names_the_address(imds_simulator: Simulator, client: Client) -> None:
    """The error about a refused connection names the address."""
    url = closed_port()
    error = refused(client(url))
    assert (error.reason, url in str(error)) == ("refused", True)


def test_a_missing_network_is_explained() -> None:
    """The error about a missing network has the system's reason."""
    pool = HTTPConnection("10.0.0.1")
    new = NewConnectionError(pool, "Failed to establish a new connection")
    new.__cause__ = OSError(101, "Network is unreachable")
    error = requests.ConnectionError("HTTPConnectionPool")
    error.__context__ = new
    assert explain(error, "http://10.0.0.1", 5.0).args == (
        "IMDS at http://10.0.0.1 cannot be reached: Network is unreachable",
    )


def test_a_connection_that_is_reset_is_tried_once_more(
    imds_simulator: Simulator, client: Client
) -> None:
    """A request is repeated once if a kept connection is reset; a second reset is an error."""
    imds_client = client(imds_simulator.url)
    imds_client.events()
    imds_simulator.fault(ResetFault())
    imds_client.events()
    imds_simulator.fault(ResetFault(), times=2)
    error = refused(imds_client)
    assert (error.reason, imds_simulator.gets) == ("connection", 5)


def test_an_older_api_version_is_found(client: Client) -> None:
    """If IMDS refuses the api-version, the newest one that it accepts is used from then on."""
    with Simulator(api_versions=["2017-08-01", "2019-01-01"]) as old:
        imds_client = client(old.url)
        imds_client.events()
        imds_client.events()
        tried = len(EVENTS_API_VERSIONS) - EVENTS_API_VERSIONS.index("2019-01-01")
        assert (imds_client.api_version, old.gets) == ("2019-01-01", tried + 1)


def test_the_newest_known_version_is_asked_for() -> None:
    """Without a setting, the bridge asks for the newest api-version that is known."""
    assert Settings().imds.api_version == NEWEST


@pytest.mark.parametrize("version", EVENTS_API_VERSIONS)
def test_each_known_version_is_found(client: Client, version: str) -> None:
    """The simulator answers each api-version that is known, and the bridge finds it by itself."""
    with Simulator(api_versions=[version]) as simulator:
        imds_client = client(simulator.url)
        imds_client.events()
    assert imds_client.api_version == version


def test_the_versions_of_the_instance_document_are_known() -> None:
    """The simulator knows each api-version in which the bridge asks for the instance document."""
    assert set(INSTANCE_VERSIONS_TRIED) <= set(INSTANCE_API_VERSIONS)


def test_the_versions_that_a_refusal_names_come_last(client: Client) -> None:
    """Unknown versions in a refusal are tried last, in IMDS's order; invalid ones are left out."""
    known = len(EVENTS_API_VERSIONS)
    named = ["2031-01-01", "x/../y", 7, NEWEST, "2030-01-01"]
    with RawImds(*[refusal(*named)] * (known + 1), reply()) as raw:
        imds_client = client(raw.url)
        imds_client.events()
    assert raw.versions[known:] == ["2031-01-01", "2030-01-01"]
    assert (imds_client.api_version, raw.versions[0]) == ("2030-01-01", NEWEST)


def test_when_all_are_refused_imds_is_left_in_peace(client: Client) -> None:
    """If IMDS refuses every version, requests become rarer, so that other pollers of the VM get no
    429.
    """
    newest = [f"20{n}-01-01" for n in range(30, 50)]
    with RawImds(refusal(*newest)) as raw:
        imds_client = client(raw.url)
        error = refused(imds_client)
    assert (error.reason, error.retry_after, len(raw.requests)) == (
        "http_400",
        MAX_RETRY_AFTER,
        10,
    )
    assert "SEB_IMDS__API_VERSION" in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"newest-versions":3}', b"\xff", b"[" * 9999]
)
def test_a_refusal_may_say_anything(body: bytes, client: Client) -> None:
    """Any body of a refusal is accepted."""
    with RawImds(reply("400 Bad Request", body)) as raw:
        imds_client = client(raw.url)
        error = refused(imds_client)
    assert (error.reason, len(raw.requests)) == ("http_400", len(EVENTS_API_VERSIONS))


def test_one_refusal_does_not_change_a_version_that_works(client: Client) -> None:
    """One refusal does not change a version that has worked: an older one leaves out fields, so
    every event would seem to have changed.
    """
    with RawImds(reply(), refusal(), refusal(), reply()) as raw:
        imds_client = client(raw.url)
        imds_client.events()
        errors = [refused(imds_client), refused(imds_client)]
        imds_client.events()
    assert [(error.reason, error.retry_after) for error in errors] == [("http_400", None)] * 2
    assert raw.versions == [NEWEST] * 4


def test_a_version_that_is_refused_for_good_is_given_up(client: Client) -> None:
    """A version that is refused again and again is replaced by an older one."""
    with RawImds(reply(), *[refusal()] * MAX_REFUSALS, reply()) as raw:
        imds_client = client(raw.url)
        imds_client.events()
        for _ in range(MAX_REFUSALS - 1):
            refused(imds_client)
        imds_client.events()
    assert (raw.versions[-1], imds_client.api_version) == (OLDER, OLDER)


def test_the_wanted_version_is_asked_for_again(client: Client) -> None:
    """The wanted version is tried again from time to time, because an older one leaves out
    fields.
    """
    with RawImds(refusal(), *[reply()] * (PROBE_EVERY_REQUESTS + 1)) as raw:
        imds_client = client(raw.url)
        used = []
        for _ in range(PROBE_EVERY_REQUESTS):
            imds_client.events()
            used.append(imds_client.api_version)
    assert (used[0], used[-2], used[-1]) == (OLDER, OLDER, NEWEST)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"<html>", b'{"vmId":1e999}', b"[" * 99999, b'{"a":1,"a":2}']
)
def test_an_instance_document_that_is_none_is_an_error(body: bytes, client: Client) -> None:
    """An instance document that is not a JSON object is an error."""
    with RawImds(reply(body=body)) as raw:
        imds_client = client(raw.url)
        with pytest.raises(ImdsError) as caught:
            imds_client.instance()
    assert caught.value.reason == "malformed"


def test_the_instance_document_falls_back_too(client: Client) -> None:
    """If the api-version of the instance document is refused, an older one is used."""
    with RawImds(refusal(), reply(body=b'{"vmId":"x"}')) as raw:
        imds_client = client(raw.url)
        instance = imds_client.instance()
    assert (instance, raw.versions) == ({"vmId": "x"}, [INSTANCE_API_VERSIONS[-1], "2019-06-04"])


def test_outside_a_vnet_the_endpoint_is_found(imds_simulator: Simulator, client: Client) -> None:
    """If the given address does not answer, the next poll uses the endpoint from DHCP."""
    imds_client = client(closed_port(), others=[closed_port(), imds_simulator.url])
    errors = [refused(imds_client).reason, refused(imds_client).reason]
    imds_client.events()
    assert (["refused"] * 2, imds_simulator.url) == (errors, imds_client.url)


def test_a_wrong_endpoint_is_left_again(imds_simulator: Simulator, client: Client) -> None:
    """If the endpoint from DHCP has no events, the given address is tried again."""
    given = closed_port()
    with RawImds(reply("404 Not Found")) as other:
        imds_client = client(given, others=[other.url])
        tried = []
        for _ in range(4):
            tried.append(imds_client.url)
            refused(imds_client)
    assert [given, other.url] * 2 == tried


@pytest.mark.parametrize(
    "fault", [StatusFault(404), StatusFault(410), Slow(5.0), ResetFault()], ids=str
)
def test_an_endpoint_that_is_there_is_not_left(
    imds_simulator: Simulator, fault: Fault, client: Client
) -> None:
    """The client does not change an endpoint that answers, even with errors."""
    imds_simulator.fault(fault)
    imds_client = client(imds_simulator.url, first_timeout=0.3, others=[closed_port()])
    refused(imds_client)
    assert imds_client.url == imds_simulator.url


def test_an_endpoint_that_has_answered_is_kept(client: Client) -> None:
    """An endpoint that has sent a document is kept when it fails later."""
    with RawImds() as raw:
        imds_client = client(raw.url, others=[closed_port()])
        imds_client.events()
    refused(imds_client)
    refused(imds_client)
    assert imds_client.url == raw.url
