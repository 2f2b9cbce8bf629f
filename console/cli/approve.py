"""`seb console approve`: approves an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from console.cli import approval_progress, confirmation
from console.cli.client import ConsoleClient, event_path
from console.errors import RefusedError
from console.fleet.differences import names_of
from sinks.shared.number import Number


@click.command("approve")
@click.argument("event_id", metavar="EVENTID")
@click.option("--reason", required=True, help="The reason; it is in the audit and in the VM's log.")
@click.option("--fingerprint", metavar="F", help="Approve only if the event is still the one of F.")
@click.option(
    "--force", is_flag=True, help="Approve though too many VMs of its group are away; audited."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until the approval is confirmed (the default), or only send it.",
)
@click.option(
    "--timeout",
    type=Number(0, 3600, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per step.")
def command(
    *,
    event_id: str,
    reason: str,
    fingerprint: str | None,
    force: bool,
    yes: bool,
    wait: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Approve the event EVENTID: Azure starts it now instead of at its time.

    An approval releases every VM that the event lists, so they are shown first. If the event's
    group is full, it is refused and the VMs that are away are named, unless --force is given. Exit
    codes: 0 confirmed, or sent with --no-wait; 1 refused, rejected or failed; 75 not confirmed in
    time, or a second person is needed; 77 not permitted.
    """
    reason = confirmation.checked_reason(reason, yes=yes)
    client = ConsoleClient()
    event = client.get(event_path(event_id))
    confirmation.show(event, releases=True)
    if fingerprint is not None:
        confirmation.refuse_changed(event, fingerprint)
    confirmation.ask(_question(event), yes=yes)
    try:
        answer = client.post(
            f"{event_path(event_id)}/approve",
            fingerprint=event["fingerprint"],
            reason=reason,
            **({"force": True} if force else {}),
        )
    except RefusedError as error:
        confirmation.explain(error, event)
    steps = approval_progress.ApprovalProgress(client, event["eventId"], as_json=as_json)
    return steps.follow(answer, seconds=timeout if wait else 0)


def _question(event: Mapping[str, Any]) -> str:
    count = len(names_of(event))
    if not count:
        return "Approve?"
    return f"Release {count} VM{'' if count == 1 else 's'}?"
