"""`seb events`: the last records of the running bridge."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime

import click

from bridge.api.http_client import Viewer
from bridge.cli import common
from sinks.readable_line import readable_line
from wire.record import read_record


@click.command("events")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object; its fields are stable.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="How many; 100.")
@common.set_option
def command(*, as_json: bool, limit: int, overrides: tuple[str, ...]) -> None:
    """Show the last records, the newest last; heartbeats are left out.

    The bridge keeps about a thousand that are delivered. Exit code 69: no bridge answers.
    """
    viewer = Viewer(common.read_configuration(overrides).settings.http.listen)
    answer = viewer.json(f"/api/v1/events?limit={limit}")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    now = datetime.now(UTC)
    for body in answer["records"]:
        record = read_record(json.dumps(body).encode())
        day = f"{record.time[:10]} "
        room = width and width - len(day)
        click.echo(day + readable_line(record, now=now, width=room, colour=terminal))
