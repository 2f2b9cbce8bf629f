"""`seb console events`: lists the events of the fleet."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

import click

from console.cli.client import Columns, ConsoleClient, show
from sinks.shared.text import listed

_NAMES_SHOWN: Final = 3


def _names(event: dict[str, Any]) -> str:
    return listed([each["name"] for each in event["resources"]], _NAMES_SHOWN)


def _decision(event: dict[str, Any]) -> object:
    return event["decision"]["state"]


def _turn(event: dict[str, Any]) -> object:
    return event["turn"]["state"]


_COLUMNS: Final[Columns] = {
    "EVENT": itemgetter("eventId"),
    "TYPE": itemgetter("eventType"),
    "STATUS": itemgetter("eventStatus"),
    "NOT BEFORE": itemgetter("notBefore"),
    "NAMES": _names,
    "SEEN BY": itemgetter("seenBy"),
    "DECISION": _decision,
    "TURN": _turn,
}


@click.command("events")
@click.option("--json", "as_json", is_flag=True, help="As JSON; its fields are those of the API.")
@click.option("--state", type=click.Choice(["open", "over"]), default="open", help="open, or over.")
@click.option("-q", "--query", help="A part of an event's id or of a resource's name.")
@click.option("--site", help="Only events that a VM of that site reported.")
@click.option("--type", "event_type", help="Only events of that type, such as Reboot.")
@click.option("--group", help="Only events that touch that group.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, help="How many; 1000.")
def command(  # noqa: PLR0917  # click's options
    as_json: bool,  # noqa: FBT001
    state: str,
    query: str | None,
    site: str | None,
    event_type: str | None,
    group: str | None,
    limit: int,
) -> int:
    """Show the events of the fleet, the one with the least time left first.

    It asks the console at SEB_CONSOLE_URL. Exit code 69: no console answers.
    """
    items = ConsoleClient().read_list(
        "events", limit, state=state, q=query, site=site, type=event_type, group=group
    )
    show(items, _COLUMNS, as_json=as_json, nothing="no events")
    return 0
