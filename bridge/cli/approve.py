"""`seb approve`: a person approves an event that was shown, here or from a control plane."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

import click

from bridge.cli import common
from bridge.cli.approve_here import ask_here, follow, show_step, subject
from bridge.cli.approve_remote import Target, approve_remotely, ping, remote_options
from bridge.cli.confirmation import confirm_approval
from sinks.shared.number import Number

MAX_TEXT: Final = 500


@click.command("approve")
@click.argument("event_id", required=False)
@remote_options
@click.option(
    "--wait",
    "seconds",
    type=Number(0, 3600, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the approval is confirmed.",
)
@click.option(
    "--until",
    type=click.Choice(["posted", "confirmed"]),
    default="confirmed",
    show_default=True,
    metavar="STATE",
    help="What to wait for: posted (Azure has taken it) or confirmed (the event has started).",
)
@click.option(
    "--ping", "only_ping", is_flag=True, help="Approve nothing; test the way to the VM and back."
)
@click.option(
    "--reason",
    "person_reason",
    metavar="TEXT",
    help="Why, such as the number of a change; it is in every receipt.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per step.")
@common.set_option
def command(
    *,
    event_id: str | None,
    vm_id: str | None,
    key: Path | None,
    sink_name: str | None,
    seconds: float,
    until: str,
    only_ping: bool,
    person_reason: str | None,
    yes: bool,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Approve the pending event EVENT_ID: Azure starts it now instead of at its time.

    An approval releases every VM that the event lists, so they are shown first.

    On the VM itself it asks the running bridge. With --to and --key it signs a command and sends
    it over the broker of a configured sink, which the VM's bridge has to trust and to listen on.
    """
    _require(event_id, vm_id, key, only_ping=only_ping, person_reason=person_reason)
    if not (yes or only_ping or sys.stdin.isatty()):
        raise click.UsageError("standard input is not a terminal; confirm with --yes")
    show = partial(show_step, as_json=as_json)
    if vm_id is None:
        directory = common.read_configuration(overrides).settings.state_dir
        confirm = partial(confirm_approval, mark="this VM", yes=yes)
        approval = ask_here(
            "approve", str(event_id), directory, person_reason=person_reason, confirm=confirm
        )
        code = follow(directory, approval, show, until=until, seconds=seconds)
        raise click.exceptions.Exit(code)
    target = Target(
        vm_id=vm_id,
        key_file=key or Path(),
        sink=sink_name,
        seconds=seconds,
        config=common.read_configuration(overrides),
        show=show,
        until=until,
        subject=subject(),
    )
    confirm = partial(confirm_approval, mark="the VM of --to", yes=yes)
    code = (
        approve_remotely(target, event_id, person_reason=person_reason, confirm=confirm)
        if event_id
        else ping(target)
    )
    raise click.exceptions.Exit(code)


def _require(
    event_id: str | None,
    vm_id: str | None,
    key: Path | None,
    *,
    only_ping: bool,
    person_reason: str | None,
) -> None:
    if only_ping and event_id is not None:
        raise click.UsageError("--ping approves nothing; leave EVENT_ID out")
    if not only_ping and not event_id:
        raise click.UsageError("name the event: EVENT_ID, as records have it")
    if (vm_id is None) != (key is None):
        raise click.UsageError("--to and --key go together: a command is signed")
    if only_ping and vm_id is None:
        raise click.UsageError("--ping needs --to and --key")
    if person_reason is not None and not (
        0 < len(person_reason) <= MAX_TEXT and person_reason.isprintable()
    ):
        raise click.UsageError(f"--reason is one line of at most {MAX_TEXT} characters")
