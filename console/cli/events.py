"""`seb console events`."""

from __future__ import annotations

import json

import click

from console.cli.client import Client, table


@click.command("events")
@click.option("--json", "as_json", is_flag=True, help="As JSON; its fields are those of the API.")
@click.option("--state", type=click.Choice(["open", "over"]), default="open", help="open, or over.")
@click.option("-q", "--query", help="A part of an event's id or of a resource's name.")
@click.option("--site", help="Only events that a VM of that site reported.")
@click.option("--type", "event_type", help="Only events of that type, such as Reboot.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, help="How many; 1000.")
def command(  # noqa: PLR0917  # click's options
    as_json: bool,  # noqa: FBT001
    state: str,
    query: str | None,
    site: str | None,
    event_type: str | None,
    limit: int,
) -> int:
    """Show the events of the fleet, the one with the least time left first.

    It asks the console at SEB_CONSOLE_URL. Exit code 69: no console answers.
    """
    items = Client().listed("events", limit, state=state, q=query, site=site, type=event_type)
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
        return 0
    if not items:
        click.echo("no events")
        return 0
    rows: list[list[object]] = [
        ["EVENT", "TYPE", "STATUS", "NOT BEFORE", "NAMES", "SEEN BY", "DECISION"]
    ]
    for item in items:
        names = [each["name"] for each in item["resources"]]
        short = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004
        rows.append(
            [
                item["eventId"],
                item["eventType"],
                item["eventStatus"],
                item["notBefore"],
                short,
                item["seenBy"],
                item["decision"]["state"],
            ]
        )
    click.echo(table(rows))
    return 0
