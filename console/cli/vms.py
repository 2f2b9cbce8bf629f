"""`seb console vms`."""

from __future__ import annotations

import json

import click

from console.cli.client import Client, table

_CONTACTS = ["heard", "late", "silent", "stopped", "learning", "retired"]


@click.command("vms")
@click.option("--json", "as_json", is_flag=True, help="As JSON; its fields are those of the API.")
@click.option("--contact", type=click.Choice(_CONTACTS), help="How the bridge is heard.")
@click.option(
    "--condition", type=click.Choice(["clear", "scheduled", "started"]), help="What it expects."
)
@click.option("-q", "--query", help="A part of the VM's name.")
@click.option("--site", help="Only VMs of that site.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=10_000, help="How many; 10000.")
def command(  # noqa: PLR0917  # click's options
    as_json: bool,  # noqa: FBT001
    contact: str | None,
    condition: str | None,
    query: str | None,
    site: str | None,
    limit: int,
) -> int:
    """Show the VMs of the fleet by name, and how each bridge is heard.

    It asks the console at SEB_CONSOLE_URL. Exit code 69: no console answers.
    """
    items = Client().listed("vms", limit, contact=contact, condition=condition, q=query, site=site)
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
        return 0
    if not items:
        click.echo("no VMs")
        return 0
    rows: list[list[object]] = [
        ["VM", "SITE", "CONTACT", "CONDITION", "LAST HEARD", "BRIDGE", "MISSING RECORDS"]
    ]
    rows += [
        [
            item["name"],
            item["site"],
            item["contact"],
            item["condition"],
            item["lastHeardAt"],
            item["bridgeVersion"],
            item["gaps"],
        ]
        for item in items
    ]
    click.echo(table(rows))
    return 0
