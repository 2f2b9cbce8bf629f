"""Real bridges that reach the console over HTTPS alone: records by webhook, commands by poll."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console.decision_bench import audit, decide, ended
from support.console.https_bench import HttpsBench
from support.console.pull_client import PullClient
from support.eventually import eventually
from support.postgresql import PostgreSql


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HttpsBench]:
    """One VM."""
    with HttpsBench(tmp_path) as made:
        yield made


def test_an_approval_over_https_alone(bench: HttpsBench) -> None:
    """An approval is fetched, accepted, posted once and confirmed over HTTPS; a revoked VM gets no
    more commands.
    """
    with (
        bench.console() as console,
        bench.bridge(console),
    ):
        event = bench.announced(console)
        answer = decide(console, event, "patch night")
        assert answer.status_code == 202, answer.text
        command = ended(console, answer.json()["jti"])
        assert [each["state"] for each in command["history"]] == [
            "sent",
            "accepted",
            "posted",
            "confirmed",
        ]
        assert bench.effective == [event["eventId"]]
        (row,) = [row for row in audit(console) if row["action"] == "approve"]
        assert (row["reason"], row["jti"]) == ("patch night", command["jti"])
        assert console.run("enroll", "--revoke", bench.simulator.vm.vm_id).returncode == 0
        eventually(lambda: console.metric("seb_console_polls_held") == 0, what="no poll")


def test_a_command_outlives_its_vm_its_console_and_a_lost_answer(
    bench: HttpsBench,
) -> None:
    """A command is carried out once although its VM and its console are killed, and an answer with
    it is lost.
    """
    with (
        bench.console() as console,
        bench.bridge(console) as bridge,
        PullClient(console.url, console.key_file) as lost,
    ):
        event = bench.announced(console)
        bridge.kill()
        answer = decide(console, event)
        assert answer.status_code == 202, answer.text
        assert len(lost.ask(bench.simulator.vm.vm_id).json()) == 1
        console.kill()
        console.start()
        bridge.start()
        assert ended(console, answer.json()["jti"])["state"] == "confirmed"
        assert bench.effective == [event["eventId"]]
        assert [row["action"] for row in audit(console)].count("approve") == 1


def test_a_command_of_one_console_reaches_the_poll_at_another(
    bench: HttpsBench, postgresql: PostgreSql
) -> None:
    """A command that is approved at one of two consoles on PostgreSQL is fetched from the other."""
    database = postgresql.database("pull_of_two")
    asked = bench.console("asked", DATABASE=database)
    other = bench.console("other", DATABASE=database)
    other.key_file.write_text(asked.key_file.read_text())
    with (
        asked,
        other,
        bench.bridge(asked),
    ):
        event = bench.announced(other)
        answer = decide(other, event)
        assert answer.status_code == 202, answer.text
        assert ended(other, answer.json()["jti"])["state"] == "confirmed"
        assert bench.effective == [event["eventId"]]
        assert asked.run("enroll", "--revoke", bench.simulator.vm.vm_id).returncode == 0
        with PullClient(other.url, other.key_file) as client:
            eventually(
                lambda: client.ask(bench.simulator.vm.vm_id, wait=0).status_code == 401,
                what="the refusal at the other console",
            )
