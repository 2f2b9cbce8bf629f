"""Real bridges that reach the console over HTTPS alone: records by webhook, commands by poll."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console.deciding import audit, decide, ended
from support.console.over_https import HttpsWorld
from support.console.pulling import PullClient
from support.eventually import eventually
from support.postgresql import PostgreSql


@pytest.fixture
def world(tmp_path: Path) -> Iterator[HttpsWorld]:
    """One VM."""
    with HttpsWorld(tmp_path) as made:
        yield made


def test_an_approval_over_https_alone(world: HttpsWorld) -> None:
    """Approve, fetched, accepted, posted once, confirmed; a revoked VM then takes no commands."""
    with (
        world.console() as console,
        world.bridge(console),
    ):
        event = world.announced(console)
        answer = decide(console, event, "patch night")
        assert answer.status_code == 202, answer.text
        command = ended(console, answer.json()["jti"])
        assert [each["state"] for each in command["history"]] == [
            "sent",
            "accepted",
            "posted",
            "confirmed",
        ]
        assert world.effective == [event["eventId"]]
        (row,) = [row for row in audit(console) if row["action"] == "approve"]
        assert (row["reason"], row["jti"]) == ("patch night", command["jti"])
        assert console.run("enroll", "--revoke", world.simulator.vm.vm_id).returncode == 0
        eventually(lambda: console.metric("seb_console_polls_held") == 0, what="no poll")


def test_a_command_outlives_its_vm_its_console_and_a_lost_answer(
    world: HttpsWorld,
) -> None:
    """Killed and fetched in vain in between, it is carried out once."""
    with (
        world.console() as console,
        world.bridge(console) as bridge,
        PullClient(console.url, console.key_file) as lost,
    ):
        event = world.announced(console)
        bridge.kill()
        answer = decide(console, event)
        assert answer.status_code == 202, answer.text
        assert len(lost.ask(world.simulator.vm.vm_id).json()) == 1
        console.kill()
        console.start()
        bridge.start()
        assert ended(console, answer.json()["jti"])["state"] == "confirmed"
        assert world.effective == [event["eventId"]]
        assert [row["action"] for row in audit(console)].count("approve") == 1


def test_a_command_of_one_console_reaches_the_poll_at_another(
    world: HttpsWorld, postgresql: PostgreSql
) -> None:
    """Two consoles on PostgreSQL: approved at the one, fetched from the other."""
    database = postgresql.database("pull_of_two")
    asked = world.console("asked", DATABASE=database)
    other = world.console("other", DATABASE=database)
    other.key_file.write_text(asked.key_file.read_text())
    with (
        asked,
        other,
        world.bridge(asked),
    ):
        event = world.announced(other)
        answer = decide(other, event)
        assert answer.status_code == 202, answer.text
        assert ended(other, answer.json()["jti"])["state"] == "confirmed"
        assert world.effective == [event["eventId"]]
        assert asked.run("enroll", "--revoke", world.simulator.vm.vm_id).returncode == 0
        with PullClient(other.url, other.key_file) as client:
            eventually(
                lambda: client.ask(world.simulator.vm.vm_id, wait=0).status_code == 401,
                what="the refusal at the other console",
            )
