"""`seb outbox`: what sinks still have to get, and what they refused for good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from bridge import control
from bridge.cli import common
from bridge.desk import Desk
from bridge.errors import NO


@click.group("outbox")
def command() -> None:
    """Look at the outbox, or decide about dead records.

    It asks the running bridge, or opens the store itself where none is running.
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object; its fields are stable.")
@common.set_option
def list_(*, as_json: bool, overrides: tuple[str, ...]) -> None:
    """Show each sink's backlog and every dead record."""
    answer = _ask({"ask": "outbox.list"}, overrides)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for sink in answer["sinks"]:
        state = sink["state"] or ("not running" if sink["configured"] else "not configured")
        oldest = f", oldest of {sink['oldest']}" if sink["oldest"] else ""
        reason = f" ({sink['reason']})" if sink["reason"] else ""
        click.echo(
            f"{sink['sink']}: {state}{reason}, {sink['backlog']} to deliver{oldest}, "
            f"{sink['dead']} dead"
        )
    for dead in answer["dead"]:
        click.echo(
            f"dead: {dead['sink']} {dead['sequence']} {dead['record_type']} {dead['record_id']} "
            f"after {dead['attempts']} tries at {dead['time']}: {dead['reason']}"
        )
    if not answer["sinks"]:
        click.echo("no sink has been configured with this state directory yet")


@command.command("retry")
@click.argument("sink")
@click.argument("sequences", metavar="[SEQUENCE]...", nargs=-1, type=int)
@common.set_option
def retry(*, sink: str, sequences: tuple[int, ...], overrides: tuple[str, ...]) -> None:
    """Have dead records of SINK tried again, all or those named; wakes a paused sink too."""
    answer = _ask(
        {"ask": "outbox.retry", "sink": sink, "sequences": list(sequences) or None}, overrides
    )
    click.echo(f"{answer['records']} records of {sink} will be tried again")


@command.command("drop")
@click.argument("sink")
@click.argument("sequences", metavar="[SEQUENCE]...", nargs=-1, type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.set_option
def drop(*, sink: str, sequences: tuple[int, ...], yes: bool, overrides: tuple[str, ...]) -> None:
    """Forget dead records of SINK, all or those named; they will never be delivered to it."""
    what = f"{len(sequences)} dead records" if sequences else "all dead records"
    if not yes:
        click.confirm(f"Forget {what} of {sink}?", abort=True, err=True)
    answer = _ask(
        {"ask": "outbox.drop", "sink": sink, "sequences": list(sequences) or None}, overrides
    )
    click.echo(f"{answer['records']} dead records of {sink} are forgotten")


def _ask(request: Mapping[str, Any], overrides: tuple[str, ...]) -> dict[str, Any]:
    directory = common.read_configuration(overrides).settings.state_dir
    try:
        answer = control.ask(directory, request)
        return _open_and_ask(request, overrides) if answer is None else answer
    except control.ControlError as error:
        click.echo(f"seb: {error}", err=True)
        raise click.exceptions.Exit(NO) from None


def _open_and_ask(request: Mapping[str, Any], overrides: tuple[str, ...]) -> dict[str, Any]:
    from bridge.outbox import Outbox  # noqa: PLC0415  # a bridge that runs answers without it
    from bridge.storefile import open_store  # noqa: PLC0415

    directory = common.read_configuration(overrides).settings.state_dir
    store, _ = open_store(directory, datetime.now(UTC))
    try:
        return Desk(Outbox(store)).answer(request)
    finally:
        store.close()
