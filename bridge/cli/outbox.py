"""`seb outbox`: records that are not delivered yet, and dead records."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from bridge.api import control
from bridge.api.control_requests import ControlRequests
from bridge.cli import common
from bridge.cli.sink_table import sink_table
from bridge.config.load import Configuration
from sinks.shared.errors import NO
from sinks.shared.text import escaped


@click.group("outbox")
def command() -> None:
    """Look at the outbox, or decide about dead records.

    It asks the running bridge, or opens the store itself if no bridge runs.
    """


@command.command("list", short_help="Show each sink's backlog and every dead record.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object; its fields are stable.")
@common.set_option
def list_(*, as_json: bool, overrides: tuple[str, ...]) -> None:
    """Show each sink's backlog and every dead record."""
    answer = _ask({"ask": "outbox.list"}, overrides)
    if as_json:
        click.echo(json.dumps({**answer, "sinks": [_fields(s) for s in answer["sinks"]]}, indent=2))
        return
    if answer["sinks"]:
        for line in sink_table(answer["sinks"], datetime.now(UTC)):
            click.echo(escaped(line))
    else:
        click.echo("no sink has been configured with this state directory yet")
    if answer["dead"]:
        click.echo("\nDead records; `seb outbox retry` sends them again, `drop` forgets them:")
    for dead in answer["dead"]:
        tries = "1 try" if dead["attempts"] == 1 else f"{dead['attempts']} tries"
        click.echo(
            f"{dead['sink']}  {dead['sequence']}  {dead['record_type']}  after {tries} "
            f"at {dead['time']}\n    {escaped(dead['reason'])}"
        )


def _fields(sink: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a sink with the names of this command's JSON, which are older than the
    API's.
    """
    same = ("configured", "state", "reason", "backlog")
    shown = {"sink": sink["name"], **{name: sink[name] for name in same}}
    return {**shown, "oldest": sink["oldestPendingAt"], "dead": sink["dead"]}


@command.command("retry", short_help="Retry dead records of SINK, and connect to SINK at once.")
@click.argument("sink")
@click.argument("sequences", metavar="[SEQUENCE]...", nargs=-1, type=int)
@common.set_option
def retry(*, sink: str, sequences: tuple[int, ...], overrides: tuple[str, ...]) -> None:
    """Retry dead records of SINK, all or those named.

    If the bridge runs, it connects to the sink at once, also if the sink is paused. Exit
    code 1: none of the records named is dead.
    """
    answer = _ask(
        {"ask": "outbox.retry", "sink": sink, "sequences": list(sequences) or None}, overrides
    )
    if answer.get("resumed") and not answer["records"] and not sequences:
        click.echo(f"{sink} has no dead record; what it still has to get is tried now")
        return
    _report(answer["records"], sink, sequences, "will be tried again")


@command.command("drop", short_help="Forget dead records of SINK for good.")
@click.argument("sink")
@click.argument("sequences", metavar="[SEQUENCE]...", nargs=-1, type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.set_option
def drop(*, sink: str, sequences: tuple[int, ...], yes: bool, overrides: tuple[str, ...]) -> None:
    """Forget dead records of SINK, all or those named; they will never be delivered to it.

    Exit code 1: none of the records named is dead.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal; confirm with --yes")
    what = f"record {', '.join(map(str, sequences))}" if sequences else "all dead records"
    if not (yes or click.confirm(f"Forget {what} of {sink}?", err=True)):
        click.echo("seb: nothing is forgotten: the answer was no", err=True)
        raise click.exceptions.Exit(NO)
    answer = _ask(
        {"ask": "outbox.drop", "sink": sink, "sequences": list(sequences) or None}, overrides
    )
    _report(answer["records"], sink, sequences, "forgotten")


def _report(count: int, sink: str, sequences: tuple[int, ...], what: str) -> None:
    if count:
        click.echo(f"{sink}: {count} dead {'record' if count == 1 else 'records'} {what}")
        return
    click.echo(f"{sink} has no {'such ' if sequences else ''}dead record")
    if sequences:
        raise click.exceptions.Exit(NO)


def _ask(request: Mapping[str, Any], overrides: tuple[str, ...]) -> dict[str, Any]:
    config = common.read_configuration(overrides)
    try:
        answer = control.send(config.settings.state_dir, request)
        return _open_and_ask(request, config) if answer is None else answer
    except control.ControlError as error:
        click.echo(f"seb: {error}", err=True)
        raise click.exceptions.Exit(NO) from None


def _open_and_ask(request: Mapping[str, Any], config: Configuration) -> dict[str, Any]:
    from bridge.delivery.dispatcher import make_sink, recipients  # noqa: PLC0415
    from bridge.store.opening import FILE_NAME, DamagedError, open_existing  # noqa: PLC0415
    from bridge.store.outbox import Outbox  # noqa: PLC0415  # a bridge that runs answers without it

    directory = config.settings.state_dir
    context = common.context_for(config)
    # Listing must not make the store: the command may run as another user than the bridge.
    if not (directory / FILE_NAME).exists():
        raise control.ControlError(f"there is no store in {directory} yet: the bridge has not run")
    try:
        store = open_existing(directory)
    except DamagedError as error:
        raise control.ControlError(
            f"the store in {directory} is damaged ({' '.join(str(error).split())}); the bridge "
            "puts it aside when it starts, and begins a new one"
        ) from None
    try:
        return ControlRequests(
            Outbox(store, recipients(make_sink(each, context) for each in config.sinks))
        ).answer(request)
    finally:
        store.close()
