"""What `seb check` reports of the HTTP server."""

from support.page.onlooker import Onlooker
from support.ports import free_port
from support.process.launch import Launch
from support.process.seb_here import Here
from support.sinks.http_server import HttpServer

from bridge.cli.check.steps import check_server


def test_a_server_that_is_turned_off_needs_no_look() -> None:
    """Without an HTTP server, `check` has no line about it."""
    assert list(check_server("")) == []


def test_a_free_address_is_well() -> None:
    """A free address is ok, and remains free."""
    port = free_port()
    for _ in range(2):
        (check,) = check_server(f"127.0.0.1:{port}")
        assert (check.level, "is free" in check.text) == ("ok", True)


def test_an_address_that_cannot_be_had_is_a_warning() -> None:
    """An address that is in use or not of this machine is a warning."""
    with HttpServer() as other:
        for listen in (f"127.0.0.1:{other.port}", "192.0.2.1:9469"):
            (check,) = check_server(listen)
            assert (check.level, listen in check.text) == ("warn", True)
            assert "SEB_HTTP__LISTEN" in (check.remedy or "")


def test_the_running_bridge_may_have_it(here: Here, launch: Launch) -> None:
    """If the running bridge has the address, `check` says so."""
    onlooker = Onlooker()
    launch(**onlooker.env).wait_for_log("http_listening")
    result = here("check", "--offline", **launch.env, **onlooker.env)
    assert f"the running bridge serves 127.0.0.1:{onlooker.port}" in result.out
