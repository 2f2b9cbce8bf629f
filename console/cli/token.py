"""`seb console token`: the bearer tokens of programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import click

from console.access import tokens
from console.access.people import local_person
from console.cli import common
from console.cli.client import table
from console.config.settings import ROLES, Role
from console.db.access.tokens import TokenRow
from console.db.connection.opening import Database, database_url
from console.fleet.moments import moment
from sinks.shared.errors import OK
from sinks.shared.number import Number

_MAX_DAYS = 3650


@click.group("token")
def command() -> None:
    """Let programs in: make, list and revoke the tokens that they send as Authorization: Bearer.

    The commands work on the database of the settings, with or without a running console.
    """


@command.command("add", short_help="Make a token for a program; it is shown once.")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do.")
@click.option("--site", help="The only site whose VMs and events it sees and decides.")
@click.option(
    "--days",
    type=Number(0, _MAX_DAYS),
    required=True,
    help="After so many days it ends; 0 ends it at once.",
)
@common.set_option
def add(name: str, role: str, site: str | None, days: float, overrides: tuple[str, ...]) -> int:
    """Make a token for the program NAME, and print it on standard output.

    It is shown once: the database holds only its hash. Exit code 1: the name is taken.
    """
    with _database(overrides) as database:
        text = tokens.add_token(
            database,
            name,
            role=cast("Role", role),
            site=site,
            days=days,
            actor=local_person().name,
            now=time.time(),
        )
    click.echo("this token is not shown again; hand it to the program as a secret", err=True)
    click.echo(text)
    return OK


@command.command("list", short_help="Show the tokens, and which of them are good.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@common.set_option
def list_(*, as_json: bool, overrides: tuple[str, ...]) -> int:
    """Show every token that was made, without what opens the console."""
    with _database(overrides) as database:
        rows = tokens.list_tokens(database)
    now = time.time()
    items = [_item(row, now) for row in rows]
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
    elif items:
        head = ["NAME", "ROLE", "SITE", "STATE", "ENDS", "MADE", "MADE BY"]
        names = ["name", "role", "site", "state", "endsAt", "madeAt", "madeBy"]
        click.echo(table([list(head), *([item[name] for name in names] for item in items)]))
    else:
        click.echo("no tokens")
    return OK


@command.command("revoke", short_help="End a token now.")
@click.argument("name")
@common.set_option
def revoke(name: str, overrides: tuple[str, ...]) -> int:
    """End the token NAME now; a running console refuses it within a second.

    Exit code 1: no token has that name.
    """
    with _database(overrides) as database:
        tokens.end_token(database, name, actor=local_person().name, now=time.time())
    click.echo(f"{name} is revoked", err=True)
    return OK


@contextmanager
def _database(overrides: tuple[str, ...]) -> Iterator[Database]:
    database = Database(database_url(common.read_settings(overrides)))
    try:
        database.join()
        yield database
    finally:
        database.close()


def _item(row: TokenRow, now: float) -> dict[str, Any]:
    state = "good" if row.is_good(now) else "ended" if row.revoked_at is None else "revoked"
    return {
        "name": row.name,
        "role": row.role,
        "site": row.site,
        "state": state,
        "endsAt": moment(row.ends_at),
        "madeAt": moment(row.made_at),
        "madeBy": row.made_by,
        "revokedAt": moment(row.revoked_at),
    }
