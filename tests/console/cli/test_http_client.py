"""How the console's commands and its login send requests: bounded, and to whom they trust."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from support.console.process import ConsoleProcess
from support.sinks.http_server import HttpServer, Mode
from support.sinks.throwaway_ca import ThrowawayCa

from console import http_client
from sinks.shared.errors import ConfigurationError


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A server that answers as the test says."""
    with HttpServer() as running:
        yield running


def session(url: str, *, seconds: float = 1.0, largest: int = 1000) -> requests.Session:
    """Return a session with these limits."""
    made = requests.Session()
    http_client.limit_session(made, url, seconds=seconds, largest=largest)
    return made


@pytest.mark.parametrize("mode", ["silence", "drip-headers", "drip-body", "drip-close", "interim"])
def test_an_answer_that_does_not_end_is_given_up(server: HttpServer, mode: Mode) -> None:
    """A request ends after the limit for the whole exchange, not only for each read."""
    server.answer(status=200, body=b"x" * 900, mode=mode)
    begun = time.monotonic()
    with session(server.origin) as client, pytest.raises(requests.RequestException):
        client.get(server.origin)
    assert time.monotonic() - begun < 10


def test_an_answer_that_is_too_large_is_given_up(server: HttpServer) -> None:
    """An answer that is too large is refused before all of it is in memory; one within the limit is
    returned whole.
    """
    server.answer(status=200, mode="endless")
    server.answer(status=200, body=b"x" * 1000)
    with session(server.origin, seconds=10) as client:
        with pytest.raises(requests.RequestException):
            client.get(server.origin)
        assert client.get(server.origin).content == b"x" * 1000


def test_netrc_replaces_no_token(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password for the host in .netrc is not sent in place of the token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.answer(status=200)
    with session(server.origin) as client:
        client.get(server.origin, headers={"Authorization": "Bearer t"})
    (request,) = server.requests()
    assert request.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_commands_trust_a_private_authority(tmp_path: Path, variable: str) -> None:
    """The commands trust the authority that the usual variables name; without them the error says
    what is wrong.
    """
    ca = ThrowawayCa(tmp_path)
    console = ConsoleProcess(tmp_path / "console")
    with HttpServer(tls=ca.server()) as server:
        server.answer(status=200, body=b'{"items": [], "next": null}', times=2)

        def vms(**environ: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                console.command("vms"),
                env={**console.environ, "SEB_CONSOLE_URL": server.origin, **environ},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        refused = vms()
        assert refused.returncode == 69
        assert "certificate is not trusted" in refused.stderr
        trusted = vms(**{variable: str(ca.cert)})
        assert trusted.returncode == 0, trusted.stderr


def test_a_bundle_that_cannot_be_read_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the bundle of authorities cannot be read, the error names the variable."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(ConfigurationError, match="REQUESTS_CA_BUNDLE"):
        session("https://console.example")
