"""The address on which the bridge listens."""

import pytest

from bridge.config.address import parsed, reachable, written


@pytest.mark.parametrize(
    ("listen", "host", "port_", "again"),
    [
        ("127.0.0.1:9469", "127.0.0.1", 9469, "127.0.0.1:9469"),
        ("localhost:80", "127.0.0.1", 80, "127.0.0.1:80"),
        ("[::1]:9469", "::1", 9469, "[::1]:9469"),
        ("0.0.0.0:1", "0.0.0.0", 1, "0.0.0.0:1"),
    ],
)
def test_an_address_is_read_and_written(listen: str, host: str, port_: int, again: str) -> None:
    """An address is written in the form of the setting."""
    assert parsed(listen) == (host, port_)
    assert written(host, port_) == again


@pytest.mark.parametrize("text", ["", "9469", ":9469", "h:", "h:x", "h:65536", "h:\u0661"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    """A valid host and a valid port are both required."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        parsed(text)


@pytest.mark.parametrize(
    ("listens", "expected"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.4", "10.0.0.4")]
)
def test_a_server_on_every_address_is_asked_on_loopback(listens: str, expected: str) -> None:
    """A client connects to loopback if the server listens on all addresses."""
    assert reachable(listens) == expected
