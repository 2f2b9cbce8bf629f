"""`seb console check`: checks everything that can be wrong, one line per step."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus

import click

from console import http_client
from console.access.discovery import ProviderError
from console.access.identity import callback_of
from console.access.provider import Provider
from console.cli import common
from console.config.load import exposed_secrets
from console.config.settings import ConsoleSettings
from console.db.connection.errors import DatabaseFailedError, remedy_of
from console.db.connection.opening import Database, database_url
from console.ingest import vm_secrets
from console.ingest.settings import SourceSettings, WebhookSource, read_sources
from console.ingest.source_check import check_source
from console.notify.sinks import read_sinks
from sinks.shared.errors import (
    CONFIGURATION,
    OK,
    UNREACHABLE,
    ConfigurationError,
    SebError,
    UnreachableError,
)

_ANSWER_SECONDS = 5.0
CheckStep = tuple[str, Callable[[], str]]


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
            summary = step()
        except (SebError, OSError) as error:
            click.echo(f"fail  {name}: {error}")
            found = error.exit_code if isinstance(error, SebError) else CONFIGURATION
            code = max(code, found) if found in (UNREACHABLE, CONFIGURATION) else CONFIGURATION
        else:
            click.echo(f"ok    {name}: {summary}")
    for line in _sinks(settings):
        click.echo(line)
        code = max(code, UNREACHABLE) if line.startswith("fail") and code != CONFIGURATION else code
    for line in exposed_secrets(settings):
        click.echo(f"warn  {line}")
    if not sources:
        click.echo("warn  no source is set; see SEB_CONSOLE_SOURCE__<NAME>__KIND")
    return code


def _steps(settings: ConsoleSettings, sources: dict[str, SourceSettings]) -> Iterator[CheckStep]:
    if (readiness := _readiness(settings)) is None:
        yield "listen", lambda: _check_listen(settings)
        yield "database", lambda: _database(settings)
    else:
        yield "listen", lambda: f"a console runs at {settings.listen}"
        yield "database", lambda: _address_in_use(settings, readiness)
    if settings.login.mode == "oidc":
        yield "login", lambda: _login(settings)
    for name, source in sources.items():
        if isinstance(source, WebhookSource):
            yield f"source {name}", lambda: _enrolment(settings)
        else:
            yield f"source {name}", lambda source=source: check_source(source)  # type: ignore[misc]
    if settings.pull:
        yield "command channel", lambda: _enrolment(settings)
    if settings.key is not None or settings.key_vault.key is not None:
        yield "key", lambda: _key(settings)


def _key(settings: ConsoleSettings) -> str:
    from console.signing.configured_signer import configured_signer  # noqa: PLC0415  # `--help` needs no key

    signer = configured_signer(settings)
    assert signer is not None  # noqa: S101  # asked before
    return f"{signer.public_key()['kid']} signs approvals"


def _readiness(settings: ConsoleSettings) -> str | None:
    """Return the readiness of the console that runs with these settings, or None if none runs."""
    host, port = settings.address
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # any address
    url = f"http://[{here}]:{port}/readyz" if ":" in here else f"http://{here}:{port}/readyz"
    answer = http_client.answers(url, seconds=_ANSWER_SECONDS)
    if answer is None:
        return None
    readiness = answer.text.strip()
    is_ready = answer.status_code == HTTPStatus.OK and readiness.startswith("ok")
    return readiness if is_ready or answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE else None


def _address_in_use(settings: ConsoleSettings, readiness: str) -> str:
    address = Database(database_url(settings)).address
    if not readiness.startswith("ok"):
        raise UnreachableError(f"the running console says: {readiness}")
    return f"{address}, which the running console uses"


def _sinks(settings: ConsoleSettings) -> Iterator[str]:
    """Yield a line for each check of a sink for notices."""
    for name, sink in read_sinks(settings.sink, version="check", port=settings.address[1]).items():
        for check in sink.check():
            remedy = f"; {check.remedy}" if check.remedy else ""
            yield f"{check.level:<5} sink {name}: {check.text}{remedy}"


def _check_listen(settings: ConsoleSettings) -> str:
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


def _login(settings: ConsoleSettings) -> str:
    provider = Provider(settings.login)
    try:
        provider.check()
    except ProviderError as error:
        raise UnreachableError(str(error)) from None
    return f"{provider.issuer} answers; the redirect URI is {callback_of(settings)}"


def _database(settings: ConsoleSettings) -> str:
    database = Database(database_url(settings))
    try:
        database.open()
    except DatabaseFailedError as error:
        if database.is_sqlite:
            raise
        raise DatabaseFailedError(f"{error}; {remedy_of(str(error))}") from None
    finally:
        database.close()
    return database.address


def _enrolment(settings: ConsoleSettings) -> str:
    if settings.enroll_key_file is None:
        raise ConfigurationError(vm_secrets.KEY_IS_MISSING)
    vm_secrets.read_key(settings.enroll_key_file)
    return "the key of enrolment can be read"
