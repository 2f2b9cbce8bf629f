"""`seb prepare`: a person has a VM prepare for an event, without approving it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from bridge.cli import common
from bridge.cli.approve_here import ask_here, follow, show_step, subject
from bridge.cli.approve_remote import Target, approve_remotely, remote_options
from bridge.cli.confirmation import show_preparation
from sinks.shared.number import Number


@click.command("prepare")
@click.argument("event_id")
@remote_options
@click.option(
    "--wait",
    "seconds",
    type=Number(0, 3600, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the VM is prepared.",
)
@click.option("--reason", "person_reason", metavar="TEXT", help="Why; it is in every receipt.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per step.")
@common.set_option
def command(
    *,
    event_id: str,
    vm_id: str | None,
    key: Path | None,
    sink_name: str | None,
    seconds: float,
    person_reason: str | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Have this VM, or the VM of --to, prepare for the pending event EVENT_ID.

    The sink with PREPARES=true does it. Nothing is approved. The command ends with 0 once the VM is
    prepared, at once if it is already, and with 1 if the sink gives up.
    """
    if (vm_id is None) != (key is None):
        raise click.UsageError("--to and --key go together: a command is signed")
    show = partial(show_step, as_json=as_json)
    if vm_id is None:
        directory = common.read_configuration(overrides).settings.state_dir
        answer = ask_here(
            "prepare", event_id, directory, person_reason=person_reason, confirm=show_preparation
        )
        code = follow(directory, answer, show, until="confirmed", seconds=seconds)
        raise click.exceptions.Exit(code)
    target = Target(
        vm_id=vm_id,
        key_file=key or Path(),
        sink=sink_name,
        seconds=seconds,
        config=common.read_configuration(overrides),
        show=show,
        until="confirmed",
        subject=subject(),
    )
    code = approve_remotely(
        target, event_id, person_reason=person_reason, confirm=show_preparation, prepare=True
    )
    raise click.exceptions.Exit(code)
