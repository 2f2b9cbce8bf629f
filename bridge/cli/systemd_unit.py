"""`seb systemd-unit`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

import bridge
from bridge import host, systemdunit
from bridge.errors import ConfigurationError


@click.command("systemd-unit")
def command() -> None:
    """Print a hardened systemd unit that runs this very installation of seb.

    Linux: seb systemd-unit > /etc/systemd/system/seb.service
    """
    if host.is_windows():
        raise ConfigurationError("systemd is Linux' own; see docs/windows.md for a service here")
    words = _own_command()
    click.echo(systemdunit.unit(words), nl=False)
    places = (Path(words[0]), Path(sys.base_prefix, "bin"), Path(bridge.__path__[0]))
    for obstacle in systemdunit.obstacles(places):
        click.echo(f"seb: {obstacle}: install it where all may read, as in /opt/seb", err=True)


def _own_command() -> tuple[str, ...]:
    """How to call this seb: as it was called, or as its Python's own script, or as a module.

    Links are left as they are: a virtual environment's Python is one.
    """
    called = sys.argv[0] if Path(sys.argv[0]).name == "seb" else "seb"
    for each in (called, str(Path(sys.executable).with_name("seb")), "seb"):
        if found := shutil.which(each):
            return (os.path.abspath(found),)  # noqa: PTH100  # takes out the .. as well
    return (sys.executable, "-m", "bridge")
