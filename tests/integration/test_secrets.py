"""No secret leaves the process except to its destination."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process.bridge import BridgeProcess, run_seb
from support.process.launch import Launch
from support.process.seb_here import Here
from support.sinks.five_sinks import PASSWORD, SECRETS, FiveSinks

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[FiveSinks]:
    """Every destination."""
    with FiveSinks(tmp_path / "far") as made:
        yield made


SINKS = {
    "SEB_SINK__MQTT__HOST": "127.0.0.1",
    "SEB_SINK__WEBHOOK__URL": "http://127.0.0.1:9/path-that-is-secret",
}


def found_in(text: str | bytes) -> list[str]:
    """Return the secrets that a text contains."""
    raw = text.encode() if isinstance(text, str) else text
    return [secret for secret in SECRETS if secret.encode() in raw]


def check_nothing_is_told(bridge: BridgeProcess, state: Path) -> None:
    """Check that output, log and state directory contain no secret."""
    assert found_in(b"".join(line.text for line in bridge.output)) == []
    assert found_in(bridge.errors) == []
    for path in state.rglob("*"):
        if path.is_file():
            assert found_in(path.read_bytes()) == [], path.name


def test_a_good_day_at_debug_level(launch: Launch, simulator: Simulator, sinks: FiveSinks) -> None:
    """At debug level no library logs a secret."""
    bridge = launch(**sinks.env, SEB_LOG__LEVEL="debug")
    bridge.wait_for_log("sink_up", count=5)
    simulator.announce(SimulatedEvent())
    bridge.wait_for_records(1, types="seb.event.")
    check_nothing_is_told(bridge, launch.state)
    assert bridge.stop() == 0
    check_nothing_is_told(bridge, launch.state)


def test_a_bad_day_at_debug_level(launch: Launch, simulator: Simulator, sinks: FiveSinks) -> None:
    """Messages about refused connections and dead records contain no secret."""
    sinks.http.answer(status=400, times=50)
    sinks.broker.stop()
    sinks.hub.stop()
    bridge = launch(**sinks.env, SEB_LOG__LEVEL="debug")
    bridge.wait_for_log("sink_down", count=3)
    simulator.announce(SimulatedEvent())
    bridge.wait_for_records(1, types="seb.event.")
    environment = {**launch.env, **sinks.env}
    for command in (("outbox", "list"), ("outbox", "list", "--json"), ("check",)):
        result = run_seb(*command, home=launch.home, env=environment)
        assert found_in(result.out + result.err) == []
    check_nothing_is_told(bridge, launch.state)
    bridge.kill()
    check_nothing_is_told(bridge, launch.state)


def test_a_refused_password(launch: Launch, sinks: FiveSinks) -> None:
    """The broker's refusal is shown without the password."""
    wrong = {"SEB_SINK__MQTT__PASSWORD": f"{PASSWORD}-but-wrong"}
    bridge = launch(**{**sinks.env, **wrong}, SEB_LOG__LEVEL="debug")
    bridge.wait_for_log("sink_down")
    check_nothing_is_told(bridge, launch.state)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SEB_SINK__WEBHOOK__SECRET", "whsec_path-that-is-secret"),
        ("SEB_SINK__WEBHOOK__URL", "ftp://x/path-that-is-secret"),
        ("SEB_SINK__WEBHOOK__HEADERS", '{"Authorization": "path-that-is-secret'),
        ("SEB_SINK__WEBHOOK__TEMPLATE", "{{ path-that-is-secret"),
        ("SEB_SINK__MQTT__PASSWORDS", PASSWORD),
        ("SEB_SINK__MQTT", json.dumps({"password": PASSWORD, "port": "x"})),
        ("SEB_SINK__EVENTHUB__CONNECTION_STRING", "Endpoint=path-that-is-secret"),
        ("SEB_SINK", '{"mqtt": "path-that-is-secret'),
    ],
)
def test_a_wrong_setting_is_78_without_its_value(here: Here, name: str, value: str) -> None:
    """The error names the variable and does not show its value."""
    result = here("run", **{**SINKS, name: value})
    assert (result.code, result.out) == (78, "")
    assert found_in(result.err) == []
    assert name.split("__", maxsplit=1)[0] in result.err


def test_what_is_in_force_is_shown_masked(here: Here, launch: Launch, sinks: FiveSinks) -> None:
    """`seb config show` shows that a secret is set, and nothing of it."""
    result = here("config", "show", **launch.env, **sinks.env)
    assert (result.code, found_in(result.out + result.err)) == (0, [])
    assert "SEB_SINK__MQTT__PASSWORD=**********\n" in result.out
