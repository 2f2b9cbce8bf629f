"""Two consoles on one database, or a console and its restart, give the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support.console.decision_bench import made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.postgresql import PostgreSql

from console.db.connection.transactions import write_to
from console.db.snapshot import Snapshots
from console.web.api.stream import ChangeMessages

_NUMBERS = count(1)


@pytest.fixture
def two(postgresql: PostgreSql, tmp_path: Path) -> Iterator[tuple[ConsoleStage, ConsoleStage]]:
    """Two consoles on one database; the second reads what the first has committed."""
    database = postgresql.database(f"truth_{next(_NUMBERS)}")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    private, _ = made_key(tmp_path / "keys")
    settings = {"DATABASE": database, "KEY": str(private)}
    with (
        ConsoleStage(tmp_path / "a", **settings) as one,
        ConsoleStage(tmp_path / "b", **settings) as other,
    ):
        yield one, other


def shown(stage: ConsoleStage, path: str) -> Any:
    """Return what a console answers, without what is its own."""
    answer = stage.http.get(f"{stage.url}/api/v1/{path}", timeout=20)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_one_console_shows_as_due_the_other_can_approve(
    two: tuple[ConsoleStage, ConsoleStage],
) -> None:
    """An event that one console shows as due can be approved at the other one at that moment."""
    one, other = two
    for number in range(5):
        vm = FakeVm(name=f"web-{number}")
        one.put(vm.heartbeat(now=one.now))
        one.takes_commands(vm)
        one.put(vm.event(f"E-{number}", now=one.now))
        (item,) = (
            each
            for each in shown(one, "events?state=open")["items"]
            if each["eventId"] == f"E-{number}"
        )
        assert item["decision"]["state"] == "due"
        answer = other.http.post(
            f"{other.url}/api/v1/events/E-{number}/approve",
            json={"fingerprint": item["fingerprint"], "reason": "why not"},
            timeout=20,
        )
        assert answer.status_code == 202, answer.text
        assert shown(one, f"events/E-{number}")["decision"]["state"] == "approving"


def test_two_consoles_say_the_same(two: tuple[ConsoleStage, ConsoleStage]) -> None:
    """Two consoles give the same lists, details and numbers right after a commit."""
    one, other = two
    vms = [FakeVm(name=f"web-{number}") for number in range(4)]
    one.put(*(vm.event("E", resources=["web-0", "web-1"], now=one.now) for vm in vms))
    other.put(vms[0].event("E", transition="started", resources=["web-0"], now=one.now))
    for path in ("events", "events/E", "vms", f"vms/{vms[1].vm_id}"):
        assert shown(one, path) == shown(other, path)
    for name in ("vms", "conditions", "decisionsDue"):
        assert shown(one, "overview")[name] == shown(other, "overview")[name]


def test_a_receipt_before_its_event_is_the_same_in_list_and_detail(tmp_path: Path) -> None:
    """A receipt that comes before its event is shown in the list as in the detail."""
    with ConsoleStage(tmp_path) as stage:
        vm, peer = FakeVm(name="web-1"), FakeVm(name="web-2")
        names = {"resources": ["web-1"], "now": stage.now}
        record = vm.event("E", **names)
        stage.put(vm.receipt("E", "posted", actor="rule:patching"), peer.event("E", **names))
        for also in ([], [record]):
            stage.put(*also)
            (listed,) = shown(stage, "events")["items"]
            detail = shown(stage, "events/E")
            assert listed["decision"] == detail["decision"]
        assert listed["decision"]["state"] == "approving"


def test_a_restart_changes_no_word(tmp_path: Path) -> None:
    """After a restart the answers about decisions, silence and conditions are the same."""
    private, _ = made_key(tmp_path / "keys")
    settings = {"KEY": str(private)}

    def everything(stage: ConsoleStage) -> list[Any]:
        overview = shown(stage, "overview")
        return [
            overview["vms"],
            overview["conditions"],
            *(shown(stage, path) for path in ("events", "events/E", "vms")),
        ]

    with ConsoleStage(tmp_path, **settings) as stage:
        vm, lost = FakeVm(name="web-1"), FakeVm(name="lost")
        stage.put(vm.heartbeat(now=stage.now), lost.heartbeat(now=stage.now - timedelta(hours=1)))
        stage.takes_commands(vm)
        stage.put(vm.event("E", now=stage.now))
        left = {"fingerprint": shown(stage, "events/E")["fingerprint"], "reason": "not today"}
        address = f"{stage.url}/api/v1/events/E/leave"
        assert stage.http.post(address, json=left, timeout=20).status_code == 200
        stage.put(vm.event("E", transition="updated", not_before=stage.moment(99), now=stage.now))
        stage.put(vm.receipt("E", "posted", actor="rule:patching", now=stage.now))
        stage.settle()
        before = everything(stage)
        moment = stage.now
    with ConsoleStage(tmp_path, **settings) as again:
        again.now = moment
        assert everything(again) == before


def test_a_number_that_goes_back_hides_nothing(tmp_path: Path) -> None:
    """After the database was restored, open pages read everything again."""
    with ConsoleStage(tmp_path) as stage:
        vm = FakeVm(name="web-1")
        stage.put(vm.heartbeat(now=stage.now))
        changes = ChangeMessages(Snapshots(stage.console.database, clock=stage.now.timestamp))
        assert changes.messages() == []
        with write_to(stage.console.database) as (connection, _):
            connection.execute(text("UPDATE change SET number = 0"))
        assert changes.messages() is None
        stage.put(vm.event("E", now=stage.now))
        messages = changes.messages()
        assert messages is not None
        assert "event" in {message.kind for message in messages}
        assert [each["eventId"] for each in shown(stage, "events")["items"]] == ["E"]
