"""`seb console groups check`: groups in sentences, with the members of today."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from click.testing import CliRunner
from support.console.records import FakeVm

from console.cli import command
from console.config.load import load
from console.db.batches.batch_transaction import write_batch
from console.db.connection.opening import Database, database_url
from console.db.connection.transactions import next_change_number
from console.db.turn_facts.vm_facts import member_of
from console.fleet.values.vm import Vm
from console.records.parse import parse_record

GROUPS = json.dumps([{"name": "db", "match": {"name": ["db-*"]}, "approve": {}}])


def test_a_group_without_a_member_says_so(tmp_path: Path) -> None:
    """`check` says which group has no member, so that a wrong pattern is found before people rely
    on it.
    """
    variables = {"SEB_CONSOLE_STATE_DIR": str(tmp_path), "SEB_CONSOLE_GROUPS": GROUPS}
    database = Database(database_url(load(environ=variables)))
    database.open()
    database.close()
    done = CliRunner().invoke(command, ["groups", "check"], env=variables)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        (
            "db: VMs whose name is db-*; at most 1 may be away at once; "
            "every event is for the console to approve by itself."
        ),
        "  no VM of today belongs to it",
    ]


def test_a_group_that_is_wrong_ends_with_78(tmp_path: Path) -> None:
    """A wrong group ends with 78, as it does when the console starts."""
    variables = {"SEB_CONSOLE_STATE_DIR": str(tmp_path), "SEB_CONSOLE_GROUPS": '[{"name": ""}]'}
    done = CliRunner().invoke(command, ["groups", "check"], env=variables, standalone_mode=False)
    assert done.return_value == 78


def test_a_member_has_what_groups_are_made_of() -> None:
    """A value that Azure did not report is empty, and matches no pattern that needs a character."""
    member = member_of(Vm(vm_id="v", name="db-1", zone="2", tags={"role": "db"}))
    assert (member.zone, member.scale_set, member.value("tag:role")) == ("2", "", "db")


def test_replay_says_what_would_have_been(tmp_path: Path) -> None:
    """The replay prints what would have happened to a past event of a group's VM."""
    variables = {"SEB_CONSOLE_STATE_DIR": str(tmp_path), "SEB_CONSOLE_GROUPS": GROUPS}
    database = Database(database_url(load(environ=variables)))
    database.open()
    vm, now = FakeVm(name="db-1"), datetime.now(UTC)
    batch = [
        parse_record(each.body, source="web", received_at=now.timestamp())
        for each in (
            vm.event("E-1", now=now - timedelta(hours=1)),
            vm.event("E-1", transition="ended", now=now - timedelta(minutes=30)),
        )
    ]
    with database.writing.begin() as connection:
        change_number = next_change_number(connection)
        write_batch(connection, batch, change_number, now=now.timestamp())
    database.close()
    done = CliRunner().invoke(command, ["groups", "replay"], env=variables)
    assert done.exit_code == 0, done.output
    first, last = done.output.splitlines()
    assert first.endswith("  E-1  approved at once")
    assert last == "The groups would have approved 1 of 1 events; 0 of them would have waited"
