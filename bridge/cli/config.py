"""`seb config`: the current settings, and all variables."""

from __future__ import annotations

from collections.abc import Iterable

import click

from bridge.cli import common
from bridge.config import reference
from bridge.config.reference import Variable
from sinks import registry

_MUST = " (must be given)"


@click.group("config")
def command() -> None:
    """Show the settings in force, or every variable."""


@command.command("show", short_help="Print what is in force, secrets masked.")
@common.set_option
def show(*, overrides: tuple[str, ...]) -> None:
    """Print what is in force after all sources are read; secrets are masked.

    The lines can be put into a .env file as they are, once each mask is replaced by its secret.
    """
    for name, value in reference.effective(common.read_configuration(overrides)):
        click.echo(reference.assignment(name, value))


@command.command("env", short_help="Print every variable with its default.")
def env() -> None:
    """Print every variable with its default, as a commented `.env` file."""
    click.echo(env_file(), nl=False)


def env_file() -> str:
    """Return the text of `.env.example`."""
    parts = ["# Every setting of scheduled-events-bridge with its default.\n"]
    parts += [_lines(reference.bridge_variables())]
    for kind in sorted(registry.BUILT_IN):
        parts.append(
            f"\n# A sink of kind {kind}. Another one of the same kind: choose a name NAME and set\n"
            f"# SEB_SINK__NAME__KIND={kind} and SEB_SINK__NAME__… instead.\n"
        )
        parts.append(_lines(reference.sink_variables(kind)))
    return "".join(parts)


def _lines(variables: Iterable[Variable]) -> str:
    return "".join(
        f"# {each.description}{_MUST if each.default is None else ''}\n"
        f"#{reference.assignment(each.name, each.default or '')}\n"
        for each in variables
    )
