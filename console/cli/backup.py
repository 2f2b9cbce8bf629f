"""`seb console backup`: copies the database."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli import common
from console.db.connection.backup import copy
from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import database_url
from sinks.shared.errors import OK, ConfigurationError


@click.command("backup")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@common.set_option
def command(target: Path, overrides: tuple[str, ...]) -> int:
    """Copy the SQLite database to FILE, beside a running console.

    The copy is checked, and takes the place of an older FILE only when it is complete. Keys and
    settings are not in it: keep /etc/seb/console and /etc/seb/console.env as well. PostgreSQL has
    pg_dump for this.
    """
    url = database_url(common.read_settings(overrides))
    if url.get_backend_name() != "sqlite":
        raise ConfigurationError("the database is PostgreSQL: pg_dump makes its backup")
    source = Path(str(url.database))
    if not source.is_file():
        raise ConfigurationError(f"there is no database at {source}")
    part = target.with_name(f"{target.name}.part")
    try:
        copy(source, part)
        part.replace(target)
    except (OSError, DatabaseFailedError) as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"{target}: {error}") from None
    click.echo(f"{target}: {target.stat().st_size / 1e6:.1f} MB, checked")
    return OK
