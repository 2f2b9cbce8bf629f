"""The Event Hubs sink over TLS."""

import re
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest
from support.amqp.cases import HUB, abandoned, bodies, everything_about
from support.amqp.server import SHARED_KEY, EventHubServer, HubFault
from support.sinks.throwaway_ca import ThrowawayCa

from sinks.base import SinkError
from sinks.kinds.eventhub import EventHubSink
from sinks.kinds.eventhub.settings import EventHubSettings
from sinks.testing import sample_context, sample_record

TOKEN = "made-up.access.token"


@pytest.fixture
def server(ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventHubServer]:
    """A hub with TLS, at the host and port where the SDK expects one."""
    with EventHubServer(tls=ca.server().context) as made:
        # With TLS the SDK knows no other port than 5671, which a test cannot count on.
        monkeypatch.setattr("azure.eventhub._pyamqp._connection.SECURE_PORT", made.port)
        yield made


@pytest.fixture
def trusted(ca: ThrowawayCa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the system trust the CA."""
    if sys.platform == "win32":
        pytest.skip("the store of Windows is not a file that a test may point elsewhere")
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.cert))


def make() -> EventHubSink:
    """Return a sink with a key and TLS."""
    text = f"Endpoint=sb://localhost/;SharedAccessKeyName=p;SharedAccessKey={SHARED_KEY}"
    settings = {"kind": "eventhub", "connection_string": text, "name": HUB}
    return EventHubSink("hub", EventHubSettings.model_validate(settings), sample_context())


@pytest.mark.usefixtures("trusted")
def test_records_go_over_tls(server: EventHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with a trusted certificate gets the record directly, even if the environment names an
    HTTP proxy; `check` names the version of TLS.
    """
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    sink = make()
    sink.open()
    sink.deliver([sample_record()])
    sink.close()
    assert [sample_record().body] == bodies(server.messages(HUB))
    connected, counted = make().check()
    assert (connected.level, counted.level) == ("ok", "ok")
    assert connected.text.endswith("connected over TLS, may send")


def test_a_certificate_that_is_not_trusted_is_refused(server: EventHubServer) -> None:
    """The sink sends nothing, not even a token, to a hub whose certificate is not trusted."""
    with pytest.raises(SinkError, match="certificate is not trusted") as caught:
        make().open()
    assert (server.tokens, SHARED_KEY in everything_about(caught.value)) == ([], False)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("fault", [HubFault.SILENT, HubFault.NO_ATTACH, HubFault.NO_ACK])
def test_an_abandoned_call_ends(server: EventHubServer, fault: HubFault) -> None:
    """A thread that waits in the handshake, for the link or for an acknowledgement ends soon after
    `abort`.
    """
    sink = make()
    server.misbehave(fault)

    def call() -> None:
        sink.open()
        sink.deliver([sample_record()])

    assert isinstance(abandoned(server, sink, call), SinkError)


@pytest.mark.usefixtures("trusted")
def test_check_of_a_silent_handshake_leaves_no_thread(
    server: EventHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` has a failed line for a peer that accepts TCP and never answers, and leaves no
    thread.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.check.CHECK_SECONDS", 1.0)
    server.misbehave(HubFault.SILENT)
    (line,) = make().check()
    assert line.level == "fail"
    for thread in threading.enumerate():
        if thread.name == "eventhub-bounded":
            thread.join(5)
            assert not thread.is_alive()


class _Token(NamedTuple):
    token: str
    expires_on: int


class _Credential:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def get_token(self, *scopes: str) -> _Token:
        assert scopes == ("https://eventhubs.azure.net//.default",)
        return _Token(TOKEN, 2_000_000_000)


class _NoIdentity(_Credential):
    def get_token(self, *scopes: str) -> _Token:
        raise CredentialUnavailableError(TOKEN)


class CredentialUnavailableError(Exception):
    """An error like azure-identity's."""


def identity(monkeypatch: pytest.MonkeyPatch, credential: type) -> EventHubSink:
    """A sink with a stand-in for azure-identity, since the real one would ask 169.254.169.254."""
    module = ModuleType("azure.identity")
    module.DefaultAzureCredential = credential  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure.identity", module)
    # A namespace is a host name with dots; this one is looked up nowhere.
    monkeypatch.setattr("sinks.kinds.eventhub.address._HOST", re.compile("localhost"))
    settings = EventHubSettings(kind="eventhub", namespace="localhost", name=HUB)
    return EventHubSink("hub", settings, sample_context())


@pytest.mark.usefixtures("trusted")
def test_a_managed_identity_sends(server: EventHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub gets the identity's token, and the credential is kept when the connection ends."""
    sink = identity(monkeypatch, _Credential)
    before = _Credential.made
    for number in (1, 2):
        sink.open()
        sink.deliver([sample_record(number)])
        sink.close()
    assert (server.tokens, _Credential.made - before) == ([TOKEN, TOKEN], 1)


@pytest.mark.usefixtures("trusted")
def test_a_machine_without_an_identity(
    server: EventHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the machine has no identity, the remedy names the identity and its role."""
    with pytest.raises(SinkError, match="managed identity with the role") as caught:
        identity(monkeypatch, _NoIdentity).open()
    assert TOKEN not in everything_about(caught.value)
