"""Options and steps that several commands share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO
from urllib.parse import urlsplit

import click

from console.config.load import load
from console.config.settings import Settings
from console.db.opening import Database, existing_database
from console.errors import RefusedError
from sinks.shared.errors import NO, OK

_SECRETS: Final = ("password", "connection_string")

set_option = click.option(
    "--set",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting, in the environment's spelling; it wins over every other place.",
)


def read_settings(overrides: tuple[str, ...]) -> Settings:
    """The settings, with what the command line adds. Raises `ConfigurationError`."""
    pairs = {}
    for each in overrides:
        name, equals, value = each.partition("=")
        if not equals or not name.upper().startswith("SEB_CONSOLE_"):
            raise click.UsageError("--set takes SEB_CONSOLE_NAME=VALUE")
        pairs[name.upper()] = value
    return load(pairs)


@contextmanager
def joined_database(settings: Settings) -> Iterator[Database]:
    """The database of the settings, for a change beside a running console. What the change refuses
    is an error of the command line. Raises `ConfigurationError`.
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
    """The exit code of a change to VMs; tells of each that was not changed, and why."""
    left = [vm_id for vm_id in wanted if vm_id not in done]
    for vm_id in left:
        click.echo(f"{vm_id}: {otherwise}", err=True)
    return NO if left else OK


def secrets_of(settings: Settings) -> list[str]:
    """Every secret value that stands in the settings themselves, for the log to cut out."""
    found = [
        str(value)
        for fields in settings.source.values()
        for name, value in fields.items()
        if name in _SECRETS
    ]
    if settings.database is not None:
        url = settings.database.get_secret_value()
        found += [url, urlsplit(url).password or ""]
    for each in list(found):  # a connection string, whose key alone is as secret
        for part in each.split(";"):
            name, _, value = part.partition("=")
            if name.strip().lower().endswith(("key", "signature")):
                found.append(value)
    return found


def listed_vms(listed: TextIO | None) -> Iterable[tuple[str, str]]:
    """The vmIds of a list, each with its name or ""; empty lines and those with # say nothing."""
    for line in listed or ():
        text = line.strip()
        if text and not text.startswith("#"):
            vm_id, _, name = text.partition(" ")
            yield vm_id, name.strip()
