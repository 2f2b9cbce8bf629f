"""`seb version`: the version of this installation."""

from __future__ import annotations

import click

from bridge.version import __version__


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(__version__)
