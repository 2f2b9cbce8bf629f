"""`seb console check`: looks at everything that could go wrong, one line per step."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import click

from console.cli import common
from console.config.settings import Settings
from console.errors import CONFIGURATION, OK, UNREACHABLE, ConsoleError
from console.sources import enrolment
from console.sources.reachable import reach
from console.sources.settings import SourceSettings, WebhookSource, read_sources
from console.store.opening import Database, database_url

Step = tuple[str, Callable[[], str]]


@click.command("check")
@common.set_option
def command(overrides: tuple[str, ...]) -> int:
    """Look at settings, database and sources, and say what to do about what is wrong.

    Exit codes: 0 fine, 69 something cannot be reached, 78 a setting is wrong.
    """
    settings = common.read_settings(overrides)
    sources = read_sources(settings.source)
    click.echo("ok    settings")
    code = OK
    for name, step in _steps(settings, sources):
        try:
            told = step()
        except (ConsoleError, OSError) as error:
            click.echo(f"fail  {name}: {error}")
            found = error.exit_code if isinstance(error, ConsoleError) else CONFIGURATION
            code = max(code, found) if found in (UNREACHABLE, CONFIGURATION) else CONFIGURATION
        else:
            click.echo(f"ok    {name}: {told}")
    if not sources:
        click.echo("warn  no source is set; see SEB_CONSOLE_SOURCE__<NAME>__KIND")
    return code


def _steps(settings: Settings, sources: dict[str, SourceSettings]) -> Iterator[Step]:
    yield "listen", lambda: _listen(settings)
    yield "database", lambda: _database(settings)
    for name, source in sources.items():
        if isinstance(source, WebhookSource):
            yield f"source {name}", lambda: _enrolment(settings)
        else:
            yield f"source {name}", lambda source=source: reach(source)  # type: ignore[misc]


def _listen(settings: Settings) -> str:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(
                f"{settings.listen} cannot be used ({error.strerror}); is a console running?"
            ) from None
    return f"{settings.listen} is free; login: {settings.login.mode}"


def _database(settings: Settings) -> str:
    database = Database(database_url(settings))
    try:
        database.open()
    finally:
        database.close()
    return database.place


def _enrolment(settings: Settings) -> str:
    if settings.enroll_key_file is None:
        raise OSError(
            "SEB_CONSOLE_ENROLL_KEY_FILE must be given; make one with: openssl rand -base64 32"
        )
    enrolment.read_key(settings.enroll_key_file)
    return "the key of enrolment can be read"
