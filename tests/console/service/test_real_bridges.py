"""Real bridges and a real console, over MQTT and over signed webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess, run_seb

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """An IMDS with one VM."""
    with Simulator() as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


def bridge_of(simulator: Simulator, home: Path, **settings: str) -> BridgeProcess:
    """Return a bridge that polls the simulator, with these settings."""
    home.mkdir(parents=True, exist_ok=True)
    common = {
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(home / "state"),
        "SEB_POLL_INTERVAL": "0.2",
        "SEB_HEARTBEAT_INTERVAL": "1",
        "SEB_SITE": "paris",
    }
    return BridgeProcess("run", env={**common, **settings}, home=home)


def enrolled(console: ConsoleProcess, vm_id: str) -> dict[str, str]:
    """Return the lines that `seb console enroll` prints for a VM, without the command channel."""
    done = console.run("enroll", vm_id)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("=", maxsplit=1) for line in done.stdout.splitlines())
    return {name: value for name, value in lines.items() if "__PULL_" not in name}


def announced(simulator: Simulator, event_type: str) -> str:
    """Announce an event of the VM; return its id."""
    soon = datetime.now(UTC) + timedelta(minutes=10)
    event = SimulatedEvent(event_type=event_type, not_before=soon)
    simulator.announce(event)
    return event.event_id


def followed(console: ConsoleProcess, simulator: Simulator) -> None:
    """An event is scheduled, starts and ends, and the console has each record once."""
    name = simulator.vm.name
    eventually(lambda: console.contacts().get(name) == "heard", what="heard", timeout=60)
    assert console.vms()[name]["site"] == "paris"
    event_id = announced(simulator, "Reboot")
    eventually(lambda: event_id in console.events(), what="scheduled", timeout=60)
    event = console.events()[event_id]
    assert event["resources"] == [{"name": name, "vmId": simulator.vm.vm_id, "contact": "heard"}]
    simulator.start_event(event_id)
    eventually(lambda: console.events()[event_id]["state"] == "started", what="started", timeout=60)
    simulator.end_event(event_id)
    eventually(lambda: event_id not in console.events(), what="ended", timeout=60)
    timeline = console.get(f"events/{event_id}")["timeline"]
    assert [item["transition"] for item in timeline] == ["scheduled", "started", "ended"]
    assert console.vms()[name]["gaps"] == 0


def test_a_bridge_over_mqtt(simulator: Simulator, broker: Mosquitto, tmp_path: Path) -> None:
    """Records, status and farewell of a real bridge arrive over a real broker."""
    source = {
        "SOURCE__BROKER__KIND": "mqtt",
        "SOURCE__BROKER__HOST": broker.host,
        "SOURCE__BROKER__PORT": str(broker.port),
    }
    sink = {
        "SEB_SINK__MQTT__HOST": broker.host,
        "SEB_SINK__MQTT__PORT": str(broker.port),
        "SEB_SINK__MQTT__COMMANDS": "false",
    }
    with ConsoleProcess(tmp_path / "console", **source) as console:
        name = simulator.vm.name
        with bridge_of(simulator, tmp_path / "bridge", **sink) as bridge:
            followed(console, simulator)
            assert bridge.stop() == 0
            eventually(lambda: console.contacts()[name] == "stopped", what="stopped", timeout=60)
        with bridge_of(simulator, tmp_path / "bridge", **sink) as bridge:
            eventually(lambda: console.contacts()[name] == "heard", what="back", timeout=60)
            bridge.kill()
            eventually(lambda: console.contacts()[name] == "silent", what="silent", timeout=60)


def test_a_bridge_over_signed_webhooks(simulator: Simulator, tmp_path: Path) -> None:
    """A bridge with only the lines of `enroll` sends its records, also over a restart of the
    console.
    """
    with ConsoleProcess(tmp_path / "console") as console:
        lines = enrolled(console, simulator.vm.vm_id)
        with bridge_of(simulator, tmp_path / "bridge", **lines):
            followed(console, simulator)
            console.kill()
            event_id = announced(simulator, "Freeze")
            console.start()
            eventually(lambda: event_id in console.events(), what="the event", timeout=60)
            # Judged for good once a heartbeat has come.
            eventually(lambda: console.vms()[simulator.vm.name]["gaps"] == 0, what="no gap")


def test_a_try_of_the_sink_reaches_the_console(simulator: Simulator, tmp_path: Path) -> None:
    """`seb sinks test` ends with 0; the console accepts the record, and knows no VM by it."""
    with ConsoleProcess(tmp_path / "console") as console:
        env = {
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(tmp_path / "state"),
            **enrolled(console, simulator.vm.vm_id),
        }
        result = run_seb("sinks", "test", "console", home=tmp_path, env=env)
        assert (result.code, result.out) == (0, "console: delivered\n"), result.err
        assert console.get("vms")["items"] == []
        assert (
            "seb_console_quarantined_total{"
            not in console.http.get(f"{console.url}/metrics", timeout=5).text
        )
