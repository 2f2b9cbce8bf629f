"""`seb tail`: the records of the running bridge as they are committed."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import click

from bridge.api.http_client import Viewer
from bridge.cli import common
from sinks.readable_line import readable_line
from sinks.shared.errors import TryLaterError, UnreachableError
from wire.record import read_record

AGAIN_SECONDS: Final = 1.0


@click.command("tail")
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    metavar="F",
    help="text, json (a line each), or auto: text on a terminal, json elsewhere.",
)
@common.set_option
def command(*, form: str, overrides: tuple[str, ...]) -> None:
    """Follow the records as they are committed, until Ctrl-C; heartbeats are left out.

    It continues after a restart of the bridge, without a gap if the bridge still keeps the records.
    Exit code 69: no bridge answers at the start.
    """
    viewer = Viewer(common.read_configuration(overrides).settings.http.listen)
    terminal = sys.stdout.isatty()
    as_text = form == "text" or (form == "auto" and terminal)
    # Each new connection continues from this record.
    answer = viewer.json("/api/v1/events?limit=1")
    last = f"{answer['stream']}/{answer['lastSequence']}" if answer["stream"] else None
    with suppress(KeyboardInterrupt):  # that is how it ends
        for body in _records(viewer, last):
            _show(body, as_text=as_text, terminal=terminal)


def _records(viewer: Viewer, last: str | None) -> Iterator[bytes]:
    """Yield every record after that one, for ever; print once why the bridge cannot be reached."""
    reported = None
    while True:
        try:
            for sequence, body in viewer.follow(last):
                last = sequence
                reported = None
                yield body
        except (UnreachableError, TryLaterError) as error:
            if str(error) != reported:
                reported = str(error)
                click.echo(f"seb: {error}; trying again", err=True)
        threading.Event().wait(AGAIN_SECONDS)


def _show(body: bytes, *, as_text: bool, terminal: bool) -> None:
    if not as_text:
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.buffer.flush()
        return
    width = shutil.get_terminal_size().columns if terminal else None
    click.echo(
        readable_line(read_record(body), now=datetime.now(UTC), width=width, colour=terminal)
    )
    sys.stdout.flush()
