"""Real bridges that reach the console over HTTPS alone: records by webhook, commands by poll."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.console.deciding import audit, decide, ended, made_key
from support.console.process import ConsoleProcess
from support.console.pulling import PullClient
from support.eventually import eventually
from support.postgresql import PostgreSql
from support.process.bridge import BridgeProcess

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """An IMDS with one VM."""
    with Simulator() as running:
        yield running


def console_of(directory: Path, key: Path, **settings: str) -> ConsoleProcess:
    """A console that can approve over HTTPS, not started."""
    return ConsoleProcess(directory, KEY=str(key), PULL="true", **settings)


def bridge_of(
    console: ConsoleProcess, simulator: Simulator, home: Path, trust: Path
) -> BridgeProcess:
    """A bridge with the lines of `enroll` and nothing else that connects it."""
    home.mkdir(parents=True, exist_ok=True)
    done = console.run("enroll", simulator.vm.vm_id)
    lines = dict(line.split("=", maxsplit=1) for line in done.stdout.splitlines())
    own = {
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(home / "state"),
        "SEB_POLL_INTERVAL": "0.2",
        "SEB_HEARTBEAT_INTERVAL": "5",
        "SEB_APPROVAL__TRUST": str(trust),
    }
    return BridgeProcess("run", env={**own, **lines}, home=home)


def announced(simulator: Simulator) -> str:
    """A new event that names the VM; its id."""
    soon = datetime.now(UTC) + timedelta(minutes=10)
    event = SimulatedEvent(event_type="Reboot", not_before=soon, resources=(simulator.vm.name,))
    simulator.announce(event)
    return event.event_id


def due(console: ConsoleProcess, event_id: str) -> dict[str, Any]:
    """The event, once it waits for a decision."""

    def is_due() -> bool:
        event = console.events().get(event_id)
        return event is not None and event["decision"]["state"] == "due"

    eventually(is_due, what=f"a due decision\n{console.log}", timeout=60)
    return dict(console.events()[event_id])


def started(simulator: Simulator) -> list[str]:
    """The events that POSTs at IMDS have started."""
    return [event_id for post in simulator.approvals for event_id in post.started]


def test_an_approval_over_https_alone(simulator: Simulator, tmp_path: Path) -> None:
    """Approve, fetched, accepted, posted once, confirmed; a revoked VM then takes no commands."""
    key, trust = made_key(tmp_path / "keys")
    with (
        console_of(tmp_path / "console", key) as console,
        bridge_of(console, simulator, tmp_path / "bridge", trust),
    ):
        event = due(console, announced(simulator))
        answer = decide(console, event, "patch night")
        assert answer.status_code == 202, answer.text
        command = ended(console, answer.json()["jti"])
        assert [each["state"] for each in command["history"]] == [
            "sent",
            "accepted",
            "posted",
            "confirmed",
        ]
        assert started(simulator) == [event["eventId"]]
        (row,) = [row for row in audit(console) if row["action"] == "approve"]
        assert (row["reason"], row["jti"]) == ("patch night", command["jti"])
        assert console.run("enroll", "--revoke", simulator.vm.vm_id).returncode == 0
        eventually(lambda: console.metric("seb_console_polls_held") == 0, what="no poll")


def test_a_command_outlives_its_vm_its_console_and_a_lost_answer(
    simulator: Simulator, tmp_path: Path
) -> None:
    """Killed and fetched in vain in between, it is carried out once."""
    key, trust = made_key(tmp_path / "keys")
    with (
        console_of(tmp_path / "console", key) as console,
        bridge_of(console, simulator, tmp_path / "bridge", trust) as bridge,
        PullClient(console.url, console.key_file) as lost,
    ):
        event = due(console, announced(simulator))
        bridge.kill()
        answer = decide(console, event)
        assert answer.status_code == 202, answer.text
        assert len(lost.ask(simulator.vm.vm_id).json()) == 1
        console.kill()
        console.start()
        bridge.start()
        assert ended(console, answer.json()["jti"])["state"] == "confirmed"
        assert started(simulator) == [event["eventId"]]
        assert [row["action"] for row in audit(console)].count("approve") == 1


def test_a_command_of_one_console_reaches_the_poll_at_another(
    simulator: Simulator, tmp_path: Path, postgresql: PostgreSql
) -> None:
    """Two consoles on PostgreSQL: approved at the one, fetched from the other."""
    key, trust = made_key(tmp_path / "keys")
    database = postgresql.database("pull_of_two")
    asked = console_of(tmp_path / "asked", key, DATABASE=database)
    other = console_of(tmp_path / "other", key, DATABASE=database)
    other.key_file.write_text(asked.key_file.read_text())
    with (
        asked,
        other,
        bridge_of(asked, simulator, tmp_path / "bridge", trust),
    ):
        event = due(other, announced(simulator))
        answer = decide(other, event)
        assert answer.status_code == 202, answer.text
        assert ended(other, answer.json()["jti"])["state"] == "confirmed"
        assert started(simulator) == [event["eventId"]]
        assert asked.run("enroll", "--revoke", simulator.vm.vm_id).returncode == 0
        with PullClient(other.url, other.key_file) as client:
            eventually(
                lambda: client.ask(simulator.vm.vm_id, wait=0).status_code == 401,
                what="the refusal at the other console",
            )
