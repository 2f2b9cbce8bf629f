"""`seb console run`: the console itself."""

from __future__ import annotations

import click

from console.cli import common


@click.command("run")
@common.set_option
def command(overrides: tuple[str, ...]) -> int:
    """Run the console until SIGTERM or Ctrl-C."""
    settings = common.read_settings(overrides)
    from console.service.console import Console  # noqa: PLC0415
    from sinks.shared import logs  # noqa: PLC0415  # `--help` needs none of it

    log = settings.log
    logs.configure(form=log.format, level=log.level, secrets=common.secrets_of(settings))

    Console(settings).run()
    return 0
