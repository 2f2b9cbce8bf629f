"""`seb console demo`: a whole fleet on one machine."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Final

import click

from console.config.settings import DEFAULT_LISTEN, split_address

_INTRODUCTION: Final = """\
Nine simulated VMs, each with a real bridge, report to a console on this machine: an event
that three of them share and that you can approve on the page; a cluster of three with two
events, of which the second waits for the first; a restart that a rule approves, an eviction,
a crash.
Nothing leaves this machine. Ctrl-C ends it and removes everything.
"""


def _loopback(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        host, port = split_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if host != "127.0.0.1" or not port:
        raise click.BadParameter("the demo listens on 127.0.0.1 only, at a port that you name")
    return value


@click.command("demo")
@click.option(
    "--listen",
    metavar="ADDR:PORT",
    callback=_loopback,
    help=f"Where the page is; {DEFAULT_LISTEN}, or a free port if that is in use.",
)
def command(listen: str | None) -> int:
    """Show a fleet on one machine: simulated VMs, real bridges, a real console.

    It needs no broker, no Azure and no root. Your settings are not read.
    """
    from console.demo.demo import Demo  # noqa: PLC0415  # `--help` needs none of it

    click.echo(_INTRODUCTION, err=True)
    with tempfile.TemporaryDirectory(prefix="seb-console-") as scratch:
        Demo(Path(scratch), listen=listen or _free(), on_ready=click.echo).run()
    return 0


def _free() -> str:
    """Return the usual address, or one with another port if that is in use."""
    host, port = split_address(DEFAULT_LISTEN)
    for candidate in (port, 0):
        with socket.socket() as probe:
            try:
                probe.bind((host, candidate))
            except OSError:
                continue
            return f"{host}:{probe.getsockname()[1]}"
    raise click.ClickException("no port of this machine is free")
