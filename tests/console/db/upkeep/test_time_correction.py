"""Times that are in the future after the clock was set back."""

from __future__ import annotations

from datetime import timedelta

from support.console.intake import Intake

from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.decisions import decision_rows
from console.fleet.values.decision import Decision, VmCommand
from console.fleet.values.keys import EventKey


def test_a_decision_goes_on_though_the_clock_was_set_back(database: Database) -> None:
    """If the clock is set back during an approval, its times keep their distance from the present,
    and a later decision is the newer one.
    """
    intake = Intake(database)
    at = intake.now.timestamp()
    fields = {"event_id": "E", "fingerprint": "f", "reason": "r", "scope": "s"}
    first = Decision(
        id="1",
        kind="leave",
        state="over",
        actor="ada",
        at=at - 20,
        outcome="overtaken",
        over_at=at - 10,
        **fields,
    )
    second = Decision(id="2", kind="approve", state="open", actor="ada", at=at - 10, **fields)
    of_two = Decision(
        id="4",
        kind="approve",
        state="open",
        actor="ada",
        second_actor="bob",
        at=at - 7200,
        claimed_by="one",
        claimed_until=at + 5,
        **{**fields, "event_id": "F"},
    )
    asked = VmCommand(
        jti="j",
        decision_id="2",
        vm_id="vm-1",
        channel="pull",
        subject="ada",
        made_at=at - 10,
        sent_at=at - 8,
        expires_at=at + 30,
        **fields,
    )
    with write_to(database) as (connection, change_number):
        for each in (first, second, of_two):
            decision_rows.insert_decision(connection, each, change_number)
        decision_rows.insert_command(connection, asked, change_number)
    intake.now -= timedelta(hours=1)
    intake.let_pass(0)
    intake.let_pass(10)
    third = Decision(id="3", kind="leave", state="over", actor="bob", at=at - 3590, **fields)
    with write_to(database) as (connection, change_number):
        decision_rows.insert_decision(connection, third, change_number)
        found = decision_rows.decisions_on(connection, EventKey("E", "s"))
        (command,) = decision_rows.read_commands(connection, "2")
        claimed = decision_rows.read_open(connection, EventKey("F", "s"))
    assert claimed is not None
    assert (claimed.at, claimed.claimed_until) == (at - 7200, None)
    assert [each.id for each in found] == ["1", "2", "3"]
    assert command.sent_at == at - 3600
    assert command.expires_at - command.made_at == 40
