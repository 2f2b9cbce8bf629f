"""`seb console`: the console, whose libraries are an extra that a bridge does not need."""

from __future__ import annotations

import importlib

import click

from sinks.shared.errors import ConfigurationError

_EXTRA = ("alembic", "psycopg", "sqlalchemy", "starlette", "uvicorn")


class _Missing(click.Group):
    """Replaces the console if its libraries are not installed."""

    def resolve_command(
        self, _ctx: click.Context, _args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        raise ConfigurationError(
            "the console is not installed; run: pip install 'scheduled-events-bridge[console]'"
        )


def _load() -> click.Group:
    from importlib.util import find_spec  # noqa: PLC0415  # only this command asks

    if any(find_spec(name) is None for name in _EXTRA):
        return _Missing("console", help="Show the whole fleet; needs the extra `console`.")
    # By name: the bridge must not depend on the console.
    group: click.Group = importlib.import_module("console.cli").command
    return group


command = _load()
