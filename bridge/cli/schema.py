"""`seb schema`: the JSON Schema of the records."""

from __future__ import annotations

import json

import click

from wire.schema import schema


@click.command("schema")
def command() -> None:
    """Print the JSON Schema that every record is valid against."""
    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
