"""`seb console`: one module for each command, loaded only when it is called."""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from sinks.shared.errors import SebError

COMMANDS: Final = {
    "accept": "Accept what VMs report of themselves: their names, scopes and sites.",
    "approve": "Approve an event: Azure starts it now instead of at its time.",
    "audit": "Show who decided what; `verify` proves that nothing was changed or removed.",
    "backup": "Copy the database, beside a running console.",
    "check": "Look at settings, database and sources, one line per step.",
    "demo": "Show a fleet on one machine; touches nothing.",
    "enroll": "Print the settings that let a VM speak with the console.",
    "events": "Show the events of the fleet.",
    "forget": "Remove everything that VMs have sent.",
    "groups": "Show who is away in each group and who waits; `check` explains the groups.",
    "leave": "Leave an event until its time.",
    "retire": "Say that VMs are gone: the console does not wait for them any more.",
    "run": "Run the console.",
    "token": "Make, list and revoke the tokens of programs.",
    "trust": "Print the file that lets VMs trust this console's approvals.",
    "vms": "Show the VMs of the fleet, and how each is heard.",
}


class _ConsoleCommands(click.Group):
    """Finds a command's module by its name, and turns this project's errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"console.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SebError as error:
            click.echo(f"seb console: {error}", err=True)
            return error.exit_code


@click.group(
    "console", cls=_ConsoleCommands, context_settings={"help_option_names": ["-h", "--help"]}
)
def command() -> None:
    """Show what is coming to a whole fleet, and decide about it.

    Settings come from SEB_CONSOLE_ environment variables, .env and a TOML file.
    """
