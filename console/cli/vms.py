"""`seb console vms`: lists the VMs of the fleet."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import click

from console.cli.client import Columns, ConsoleClient, show

_CONTACTS = ["heard", "late", "silent", "stopped", "learning", "retired"]
_COLUMNS: Final[Columns] = {
    "VM": itemgetter("name"),
    "SITE": itemgetter("site"),
    "CONTACT": itemgetter("contact"),
    "CONDITION": itemgetter("condition"),
    "LAST HEARD": itemgetter("lastHeardAt"),
    "BRIDGE": itemgetter("bridgeVersion"),
    "MISSING RECORDS": itemgetter("gaps"),
}


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
    items = ConsoleClient().read_list(
        "vms", limit, contact=contact, condition=condition, q=query, site=site
    )
    show(items, _COLUMNS, as_json=as_json, nothing="no VMs")
    return 0
