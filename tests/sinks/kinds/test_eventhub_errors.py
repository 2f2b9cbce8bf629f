"""The Event Hubs sink: what each error of the SDK means."""

import socket
import ssl

import pytest

from sinks.kinds.eventhub.errors import diagnose, symbol

SECRET = "SharedAccessKey=c2VjcmV0"


class EventHubError(Exception):
    """An error like the SDK's: any text, and its cause in the context."""


class AmqpError(Exception):
    """An error like the SDK's: a condition in bytes, and perhaps the error of the socket."""

    def __init__(
        self, condition: object, *, inner: Exception | None = None, status: object = None
    ) -> None:
        super().__init__(SECRET)
        self.condition = condition
        self.inner_error = inner
        self.status_code = status


class TokenExpired(AmqpError):
    """An error like the SDK's."""


def raised(*causes: Exception) -> Exception:
    """Return the SDK's error with its causes, cut off with `from None` as in the SDK."""
    try:
        try:
            raise causes[0]  # noqa: TRY301  # the context is the point
        except Exception as cause:
            for further in causes[1:]:
                cause.__cause__ = further
            raise EventHubError(SECRET) from None
    except EventHubError as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (raised(AmqpError(b"com.microsoft:server-busy")), "busy", "com.microsoft:server-busy"),
        (raised(AmqpError(b"amqp:not-found")), "missing", "does not exist"),
        (raised(AmqpError(b"amqp:client-error", status=401)), "auth", "status 401"),
        (raised(AmqpError(b"amqp:client-error", status=404)), "missing", "status 404"),
        (raised(AmqpError(b"amqp:client-error", status=503)), "busy", "status 503"),
        (raised(AmqpError(b"amqp:client-error", status=500)), "unknown", "status 500"),
        (raised(AmqpError(b"amqp:client-error", status=b"x")), "unknown", "amqp:client-error"),
        (raised(AmqpError(b"amqp:internal-error"), TimeoutError()), "timeout", "no answer in time"),
        (raised(TimeoutError()), "timeout", "no answer in time"),
        (raised(AmqpError(b"amqp:socket-error"), TimeoutError()), "network", "no connection"),
        (raised(AmqpError(b"amqp:socket-error"), socket.gaierror(-2)), "network", "resolved"),
        (raised(AmqpError(b"amqp:socket-error", inner=ConnectionResetError())), "lost", "broke"),
        (raised(AmqpError(b"amqp:socket-error"), ConnectionRefusedError()), "network", "refused"),
        (raised(AmqpError(b"amqp:socket-error"), ssl.SSLError("x")), "network", "TLS failed"),
        (
            raised(AmqpError(b"amqp:socket-error"), ssl.SSLCertVerificationError("x")),
            "network",
            "not trusted",
        ),
        (raised(AmqpError(b"amqp:socket-error")), "lost", "amqp:socket-error"),
        (raised(AmqpError(b"sig=" + b"x" * 200)), "unknown", "AmqpError"),
        (raised(KeyError(SECRET)), "unknown", "KeyError"),
        (raised(TokenExpired(b"amqp:internal-error")), "lost", "link was closed"),
    ],
)
def test_an_error_has_one_meaning(error: Exception, kind: str, words: str) -> None:
    """Each error of the SDK is diagnosed as one kind, with this project's text and a remedy, and
    without the SDK's text.
    """
    trouble = diagnose(error)
    shown = trouble.text("hub h at n.example")
    assert (trouble.kind, words in shown, bool(trouble.remedy)) == (kind, True, True)
    assert "c2VjcmV0" not in f"{shown} {trouble!r} {trouble.error('hub')!r}"


def test_the_condition_of_the_link_comes_first() -> None:
    """If a detach came before the answer, its condition explains the error that the SDK calls
    unknown.
    """
    error = raised(AmqpError(b"amqp:unknown-error"))
    assert diagnose(error, link_condition="com.microsoft:server-busy").kind == "busy"


def test_an_error_that_causes_itself_ends() -> None:
    """A cycle in the causes of an error does not make the diagnosis loop."""
    error = EventHubError(SECRET)
    other = KeyError()
    error.__context__, other.__context__ = other, error
    assert diagnose(error).kind == "unknown"


@pytest.mark.parametrize("condition", [b"a b", b"x" * 81, b"sig=abc", "é", 7, None, b""])
def test_only_a_condition_that_looks_like_one_is_shown(condition: object) -> None:
    """A condition is shown only if it looks like one, because the other side may write any text."""
    assert symbol(condition) is None
