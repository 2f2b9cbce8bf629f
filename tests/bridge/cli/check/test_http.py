from contextlib import ExitStack
from pathlib import Path

from support.page.onlooker import Onlooker, free_port
from support.process.bridge import run_seb
from support.process.launch import Launch
from support.sinks.http_server import HttpServer

from bridge.cli.check.steps import look_at_server
from bridge.simulator.simulator import Simulator


def test_a_server_that_is_turned_off_needs_no_look() -> None:
    """There is nothing to say."""
    assert list(look_at_server("")) == []


def test_a_free_address_is_well() -> None:
    """And is left free."""
    port = free_port()
    for _ in range(2):
        (check,) = look_at_server(f"127.0.0.1:{port}")
        assert (check.level, "is free" in check.text) == ("ok", True)


def test_an_address_that_something_else_has_is_a_warning() -> None:
    """The bridge delivers without it, and a person can say another."""
    with HttpServer() as other:
        listen = f"127.0.0.1:{other.port}"
        (check,) = look_at_server(listen)
    assert check.level == "warn"
    assert listen in check.text
    assert "SEB_HTTP__LISTEN" in (check.remedy or "")


def test_an_address_that_is_not_of_this_machine_is_a_warning() -> None:
    """It can never be had."""
    (check,) = look_at_server("192.0.2.1:9469")
    assert check.level == "warn"


def test_the_running_bridge_may_have_it(tmp_path: Path) -> None:
    """Whoever checks a bridge that runs is told that it does."""
    seen = Onlooker()
    with Simulator() as simulator, ExitStack() as stack:
        launch = Launch(stack, simulator.url, tmp_path)
        launch(**seen.env).wait_for_log("http_listening")
        told = run_seb("check", "--offline", env={**launch.env, **seen.env}, home=tmp_path)
    assert f"the running bridge serves 127.0.0.1:{seen.port}" in told.out
