"""`seb console audit verify`, beside a running console and after a change of the database."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from support.console import forked_process
from support.console.stage import ConsoleStage

from console.audit import audit_log
from console.audit.chain import Head
from console.db.connection.transactions import next_change_number


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A running console with three rows, one of them with control characters."""
    with ConsoleStage(tmp_path) as made:
        for actor in ("mia", "ann\x1b[31m", "mia"):
            with made.console.database.writing.begin() as connection:
                next_change_number(connection)
                audit_log.append(
                    connection,
                    at=made.now.timestamp(),
                    actor=actor,
                    action="approve",
                    event_id="E",
                    reason="patching",
                )
        yield made


def seb(stage: ConsoleStage, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of the console, as another process."""
    directory = str(stage.state.settings.state_dir)
    own = {"SEB_CONSOLE_STATE_DIR": directory, "SEB_CONSOLE_URL": stage.url}
    return forked_process.finished(["console", *words], env=own)


def head(stage: ConsoleStage) -> Head:
    """Return the end of the chain."""
    with stage.console.database.reading.begin() as connection:
        return audit_log.head(connection)


def test_a_whole_audit_is_fine_beside_a_running_console(stage: ConsoleStage) -> None:
    """The command prints the head, and accepts it as one that was kept elsewhere."""
    done = seb(stage, "audit", "verify")
    now = head(stage)
    assert (done.returncode, done.stdout) == (0, f"ok    3 rows; head 3:{now.hash}\n")
    assert seb(stage, "audit", "verify", "--head", f"3:{now.hash}").returncode == 0
    rewritten = seb(stage, "audit", "verify", "--head", f"3:{'0' * 64}")
    assert rewritten.returncode == 1
    assert "row 3" in rewritten.stdout


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE audit SET body = replace(body, 'patching', 'nothing') WHERE number = 2", "row 2"),
        ("DELETE FROM audit WHERE number = 2", "row 2 is missing"),
        ("UPDATE audit SET number = 9 - number WHERE number > 1", "missing"),
        ("UPDATE audit SET at = 'never' WHERE number = 2", "row 2"),
        ("UPDATE audit SET at = 9e999 WHERE number = 2", "row 2"),
        ("UPDATE audit SET body = x'7b7d' WHERE number = 2", "row 2"),
        ("UPDATE audit SET body = CAST(x'ff' AS TEXT) WHERE number = 2", "row 2"),
        ("UPDATE audit SET body = CAST(x'ff' AS TEXT)", "row 1"),
        ("UPDATE audit SET body = replace(hex(zeroblob(50000)), '0', '[')", "row 1"),
        ("UPDATE audit SET number = 'two' WHERE number = 2", "row 2"),
        ("UPDATE audit SET number = -2 WHERE number = 2", "row -2"),
        ("DELETE FROM audit WHERE number = 3", "row 3 is missing at the end"),
        ("DELETE FROM audit", "rows 1 to 3 are missing at the end"),
        ("UPDATE audit_head SET hash = 'another'", "row 3"),
        ("DELETE FROM audit_head", "kept beside"),
        ("DROP TABLE audit_head", "kept beside"),
    ],
)
def test_the_first_wrong_row_is_named(stage: ConsoleStage, statement: str, words: str) -> None:
    """The first changed row is named, with exit code 1."""
    file = stage.state.settings.state_dir / "console.db"
    with sqlite3.connect(file) as connection:
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement)
    connection.close()
    done = seb(stage, "audit", "verify")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("fail  ")
    assert words in done.stdout
    for path in ("/audit", "/api/v1/audit"):
        assert stage.http.get(stage.url + path, timeout=10).status_code == 200


def test_rows_that_are_deleted_from_the_end_stay_missing(stage: ConsoleStage) -> None:
    """Rows that were deleted from the end are missing, also after a new row, which follows the last
    written one.
    """
    with stage.console.database.writing.begin() as connection:
        connection.execute(text("DROP TRIGGER audit_stays_delete"))
        connection.execute(text("DELETE FROM audit WHERE number > 1"))
        next_change_number(connection)
        at = stage.now.timestamp()
        row = audit_log.append(connection, at=at, actor="mia", action="leave", event_id="E")
    assert row.number == 4
    done = seb(stage, "audit", "verify")
    assert (done.returncode, done.stdout) == (1, "fail  rows 2 to 3 are missing\n")


def test_without_a_database_nothing_is_made(tmp_path: Path) -> None:
    """Without a database the exit code is 78, and no file is made."""
    own = {"SEB_CONSOLE_STATE_DIR": str(tmp_path)}
    done = forked_process.finished(["console", "audit", "verify"], env=own)
    assert done.returncode == 78
    assert "SEB_CONSOLE_STATE_DIR" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_rows_are_readable_and_json_lines(stage: ConsoleStage) -> None:
    """The rows are a table without control characters, or with `--json` the API's lines."""
    table = seb(stage, "audit")
    assert table.returncode == 0, table.stderr
    assert "ann\ufffd[31m" in table.stdout
    assert "\x1b" not in table.stdout
    lines = seb(stage, "audit", "--json", "--after", "1").stdout.splitlines()
    api = stage.http.get(f"{stage.url}/api/v1/audit?after=1").text.splitlines()
    assert len(lines) == 2
    assert [line.replace("\\u001b", "") for line in lines] == [
        line.replace("\\u001b", "") for line in api
    ]
