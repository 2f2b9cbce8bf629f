"""`seb console leave`: leaves an event until its time."""

from __future__ import annotations

import click

from console.cli import confirmation
from console.cli.client import ConsoleClient, event_path
from console.errors import RefusedError
from sinks.shared.text import plain


@click.command("leave")
@click.argument("event_id", metavar="EVENTID")
@click.option("--reason", required=True, help="The reason; it is in the audit.")
@click.option("--fingerprint", metavar="F", help="Leave it only if it is still the one of F.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(*, event_id: str, reason: str, fingerprint: str | None, yes: bool) -> int:
    """Leave the event EVENTID until its time: a decision is not due any more.

    An event cannot be refused: Azure starts it at its notBefore, whatever is decided. Exit codes: 0
    left; 1 refused, such as because the event has changed; 77 not permitted.
    """
    reason = confirmation.checked_reason(reason, yes=yes)
    client = ConsoleClient()
    event = client.get(event_path(event_id))
    confirmation.show(event, releases=False)
    if fingerprint is not None:
        confirmation.refuse_changed(event, fingerprint)
    confirmation.ask("Leave it until its time?", yes=yes)
    try:
        client.post(
            f"{event_path(event_id)}/leave", fingerprint=event["fingerprint"], reason=reason
        )
    except RefusedError as error:
        confirmation.explain(error, event)
    click.echo(f"left  {plain(event['eventId'])}  until {plain(event['notBefore'] or 'its time')}")
    return 0
