"""`seb console audit`, and `seb console audit verify`: shows the audit, and checks its chain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from console.audit import audit_log
from console.audit.chain import Head
from console.cli import common
from console.cli.client import ConsoleClient, table
from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database, existing_database
from sinks.shared.errors import NO, OK, UnreachableError
from sinks.shared.text import plain

_PAGE_ROWS: Final = 1000
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_REASON_CHARACTERS: Final = 60
"""How many characters of a reason the table shows."""


@click.group("audit", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, as the API has them.")
@click.option("--after", type=click.IntRange(0), default=0, help="Only rows after this number.")
@click.option("--limit", type=click.IntRange(1), default=100_000, help="How many; 100000.")
@click.pass_context
def command(context: click.Context, *, as_json: bool, after: int, limit: int) -> int:
    """Show who decided what, the oldest first; `verify` proves that it is complete.

    It asks the console at SEB_CONSOLE_URL. Exit code 69: no console answers.
    """
    if context.invoked_subcommand is not None:
        return OK
    client = ConsoleClient()
    rows: list[dict[str, Any]] = []
    while limit > 0:
        found = client.lines("audit", after=after, limit=min(_PAGE_ROWS, limit))
        if not found:
            break
        limit -= len(found)
        after = found[-1]["number"]
        if as_json:
            for row in found:
                click.echo(json.dumps(row, separators=(",", ":")))
        rows += [] if as_json else found
    if not as_json:
        click.echo(_table(rows) if rows else "no rows")
    return OK


def _table(rows: list[dict[str, Any]]) -> str:
    head: list[object] = ["NUMBER", "AT", "ACTOR", "ACTION", "EVENT", "REASON"]
    return table([head, *(_cells(row) for row in rows)])


def _cells(row: Mapping[str, Any]) -> list[object]:
    reason = row.get("reason")
    if isinstance(reason, str) and len(reason) > _REASON_CHARACTERS:
        reason = reason[: _REASON_CHARACTERS - 1] + "…"
    return [*(row.get(name) for name in ("number", "at", "actor", "action", "eventId")), reason]


@command.command("verify", short_help="Find rows that were changed, removed or swapped.")
@click.option(
    "--head",
    "heads",
    metavar="NUMBER:HASH",
    multiple=True,
    help="A row's number and hash that were kept elsewhere; the audit must still hold it.",
)
@common.set_option
def verify(*, heads: tuple[str, ...], overrides: tuple[str, ...]) -> int:
    """Read the whole audit in the database of the settings, and compute every hash again.

    It needs no running console, and may run beside one. Compare the head that it prints with one
    that was kept elsewhere, or give that one with --head: the owner of the database can write a
    whole new chain. Exit code 1: a row is wrong, and the first such row is named.
    """
    known = [_head(each) for each in heads]
    database = existing_database(common.read_settings(overrides))
    try:
        return _verify(database, known)
    except DatabaseFailedError as error:
        raise UnreachableError(f"{database.address} cannot be read; {error}") from None
    finally:
        database.close()


def _verify(database: Database, known: Iterable[Head]) -> int:
    last, fault = audit_log.check(database.reading, known)
    if fault is not None:
        click.echo(f"fail  {plain(fault.message)}")
        return NO
    click.echo(f"ok    {last.number} rows; head {last.number}:{last.hash}")
    return OK


def _head(text: str) -> Head:
    number, colon, value = text.partition(":")
    good = number.isascii() and number.isdecimal() and _HASH.fullmatch(value)
    if not (colon and good):
        raise click.UsageError("--head takes NUMBER:HASH, as `seb console audit verify` prints it")
    return Head(number=int(number), hash=value)
