"""What several commands share."""

from __future__ import annotations

import click

from console.config.load import load
from console.config.settings import Settings

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
