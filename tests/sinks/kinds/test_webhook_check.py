"""The webhook sink: what `seb check` reports."""

import socket
from pathlib import Path

import pytest
from support.sinks.http_server import HttpServer
from support.sinks.throwaway_ca import ThrowawayCa
from support.sinks.webhook import KEY, HastyWebhookSink, hasty, shows_no_secret

from sinks.base import Check


def lines(sink: HastyWebhookSink) -> list[Check]:
    """Return the lines of `check`; they have no secret, and each that is not ok has a remedy."""
    told = list(sink.check())
    assert shows_no_secret(" ".join(f"{line.text} {line.remedy}" for line in told))
    assert all(line.remedy for line in told if line.level != "ok")
    return told


def test_check_of_a_good_webhook(server: HttpServer) -> None:
    """`check` has a line each for key, name and connection, and sends no request."""
    origin = server.origin.replace("127.0.0.1", "localhost")
    first, second, third = lines(hasty(server, url=f"{origin}/services/x"))
    assert (first.level, first.text) == ("ok", "signed with 1 key")
    assert (second.level, "localhost is " in second.text) == ("ok", True)
    assert (third.level, third.text) == ("ok", f"{origin} accepts connections")
    assert server.requests() == []


@pytest.mark.parametrize(("secret", "expected"), [(None, ""), ("whsec_c2hvcnQ=", "24 bytes")])
def test_a_weak_secret_is_worth_a_warning(
    server: HttpServer, secret: str | None, expected: str
) -> None:
    """`check` warns if there is no secret, or if it is shorter than the standard demands."""
    first = lines(hasty(server, secret=secret))[0]
    assert (first.level, expected in first.text) == ("warn", True)


def test_a_secret_file_that_vanished(server: HttpServer, tmp_path: Path) -> None:
    """`check` names a missing secret file, and still has the lines of the other steps."""
    file = tmp_path / "secret"
    file.write_text(KEY)
    sink = hasty(server, secret=None, secret_file=str(file))
    file.unlink()
    first, *rest = lines(sink)
    assert (first.level, str(file) in first.text, len(rest)) == ("fail", True, 1)


@pytest.mark.parametrize(("days", "level"), [(30.5, "ok"), (3.5, "warn")])
def test_a_certificate_and_its_days(
    ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch, days: float, level: str
) -> None:
    """`check` tries TLS and shows for how many days the certificate is valid; it warns of less than
    two weeks.
    """
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))
    with HttpServer(tls=ca.server(days=days)) as secured:
        last = lines(hasty(secured))[-1]
        assert (last.level, secured.requests()) == (level, [])
        assert f"{int(days)} more days" in last.text


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """`check` fails for an unknown authority, with the remedy that a delivery has."""
    with HttpServer(tls=ThrowawayCa(tmp_path).server()) as secured:
        last = lines(hasty(secured))[-1]
        why = "its certificate is not trusted: unable to get local issuer certificate"
        assert (last.level, last.text) == ("fail", f"{secured.origin}: {why}")
        assert last.remedy == "renew it, or name its authority in SSL_CERT_FILE"


def test_plain_http_to_another_machine(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` warns of records that are sent unencrypted to another machine, and fails for an
    unknown host.
    """

    def unknown(*arguments: object, **named: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    told = lines(hasty(server, url="http://hooks.invalid/services/x"))
    assert [line.level for line in told] == ["ok", "warn", "fail"]
    assert told[2].text == "http://hooks.invalid: its host name cannot be resolved"


def test_a_proxy_is_all_that_can_be_seen(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a proxy, `check` examines the proxy and does not show its password; a proxy that refuses
    connections fails.
    """
    monkeypatch.setenv("https_proxy", server.origin.replace("://", "://me:token-that-is-secret@"))
    sink = hasty(server, url="https://hooks.invalid/x")
    assert lines(sink)[-1].text == f"proxy {server.origin} accepts connections"
    server.stop()
    last = lines(sink)[-1]
    assert (last.level, last.text) == ("fail", f"proxy {server.origin}: the connection was refused")
