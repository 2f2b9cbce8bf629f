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
    """As it stands in the setting."""
    assert parsed(listen) == (host, port_)
    assert written(host, port_) == again


@pytest.mark.parametrize("text", ["", "9469", ":9469", "h:", "h:x", "h:65536", "h:\u0661"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    """A host and a port that can be, both given."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        parsed(text)


@pytest.mark.parametrize(
    ("listens", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.4", "10.0.0.4")]
)
def test_a_server_on_every_address_is_asked_on_loopback(listens: str, asked: str) -> None:
    """A client on the same machine needs one that it can connect to."""
    assert reachable(listens) == asked
