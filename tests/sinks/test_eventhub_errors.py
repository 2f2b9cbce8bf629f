import socket
import ssl

import pytest

from sinks.eventhub.errors import diagnose, symbol

SECRET = "SharedAccessKey=c2VjcmV0"


class EventHubError(Exception):
    """As the SDK's: text from anywhere, and what caused it in the context."""


class AmqpError(Exception):
    """As the SDK's: a condition in bytes, and perhaps the error of the socket."""

    def __init__(
        self, condition: object, *, inner: Exception | None = None, status: object = None
    ) -> None:
        super().__init__(SECRET)
        self.condition = condition
        self.inner_error = inner
        self.status_code = status


class TokenExpired(AmqpError):
    """As the SDK's."""


def raised(*causes: Exception) -> Exception:
    """The SDK's error over its causes, cut off with `from None` as it does."""
    try:
        try:
            raise causes[0]  # noqa: TRY301 - the context is the point
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
    """Each error of the SDK is one kind, with words of ours and a remedy, and none of its own."""
    trouble = diagnose(error)
    shown = trouble.text("hub h at n.example")
    assert (trouble.kind, words in shown, bool(trouble.remedy)) == (kind, True, True)
    assert "c2VjcmV0" not in f"{shown} {trouble!r} {trouble.error('hub')!r}"


def test_the_condition_of_the_link_comes_first() -> None:
    """A detach that overtook the answer says what the SDK calls unknown."""
    error = raised(AmqpError(b"amqp:unknown-error"))
    assert diagnose(error, link_condition="com.microsoft:server-busy").kind == "busy"


def test_an_error_that_causes_itself_ends() -> None:
    """A loop in the causes is not walked for ever."""
    error = EventHubError(SECRET)
    other = KeyError()
    error.__context__, other.__context__ = other, error
    assert diagnose(error).kind == "unknown"


@pytest.mark.parametrize("condition", [b"a b", b"x" * 81, b"sig=abc", "é", 7, None, b""])
def test_what_is_no_symbol_is_not_shown(condition: object) -> None:
    """A condition is text of the peer's, and only shown if it looks like one."""
    assert symbol(condition) is None
