"""Options and steps that several commands have in common."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO
from urllib.parse import unquote, urlsplit

import click

from console.config.load import load
from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, existing_database
from console.errors import RefusedError
from sinks.shared.errors import NO, OK

_SECRETS: Final = ("password", "connection_string")

set_option = click.option(
    "--set",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting, in the environment's spelling; it overrides every other source.",
)


def read_settings(overrides: tuple[str, ...]) -> ConsoleSettings:
    """Return the settings, with those of the command line. Raises `ConfigurationError`."""
    pairs = {}
    for each in overrides:
        name, equals, value = each.partition("=")
        if not equals or not name.upper().startswith("SEB_CONSOLE_"):
            raise click.UsageError("--set takes SEB_CONSOLE_NAME=VALUE")
        pairs[name.upper()] = value
    return load(pairs)


@contextmanager
def joined_database(settings: ConsoleSettings) -> Iterator[Database]:
    """Open the database of the settings for a change, while a console may be running. A
    `RefusedError` becomes an error of the command line. Raises `ConfigurationError`.
    """
    database = existing_database(settings)
    try:
        database.join()
        yield database
    except RefusedError as error:
        raise click.UsageError(str(error)) from None
    finally:
        database.close()


def code_after(wanted: Sequence[str], done: Container[str], *, otherwise: str) -> int:
    """Return the exit code of a change to VMs, after printing each VM that was not changed, and
    why.
    """
    left = [vm_id for vm_id in wanted if vm_id not in done]
    for vm_id in left:
        click.echo(f"{vm_id}: {otherwise}", err=True)
    return NO if left else OK


def secrets_of(settings: ConsoleSettings) -> list[str]:
    """Return every secret value in the settings themselves, so that the log can hide it."""
    found = [
        str(value)
        for fields in settings.source.values()
        for name, value in fields.items()
        if name in _SECRETS
    ]
    if settings.database is not None:
        url = settings.database.get_secret_value()
        password = urlsplit(url).password or ""
        found += [url, password, unquote(password)]
    return found


def listed_vms(listed: TextIO | None) -> Iterable[tuple[str, str]]:
    """Yield each vmId of a list with its name or an empty text. Empty lines and lines with # are
    skipped.
    """
    for line in listed or ():
        text = line.strip()
        if text and not text.startswith("#"):
            vm_id, _, name = text.partition(" ")
            yield vm_id, name.strip()
