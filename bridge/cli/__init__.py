"""The command `seb`: one module for each command, loaded only when it is called."""

from __future__ import annotations

import importlib
import sys
from io import TextIOWrapper
from typing import Final

import click

from bridge.version import __version__
from sinks.shared.errors import BUG, OK, USAGE, SebError

COMMANDS: Final = {
    "approve": "Approve an event, on this VM or from a control plane.",
    "check": "Check everything that could go wrong, one line per step.",
    "config": "Show the settings in force, or every variable there is.",
    "console": "Show a whole fleet: what is coming, and which VMs are silent.",
    "demo": "Run the bridge on a simulated VM; nothing real is touched.",
    "events": "Show the last records of the running bridge.",
    "keys": "Make and show the keys that sign commands.",
    "outbox": "Show what is not delivered yet, and what sinks refused.",
    "prepare": "Have a VM prepare for an event; nothing is approved.",
    "run": "Run the bridge.",
    "schema": "Print the JSON Schema of the records.",
    "simulate": "Run a stand-in for IMDS that plays a scenario.",
    "sinks": "List the kinds of sink, or try a configured one.",
    "status": "Show the state of the running bridge.",
    "systemd-unit": "Print a hardened unit for systemd.",
    "tail": "Follow the records as they are committed.",
    "version": "Print the version.",
}


def module_of(command: str) -> str:
    """Return the name of a command's module."""
    return f"bridge.cli.{command.replace('-', '_')}"


class _Commands(click.Group):
    """Imports a command's module only when it is called: `seb version` imports nothing else."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(module_of(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  # only on the way out

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `seb {near[0]}`?" if near else "`seb --help` lists them all"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def seb() -> None:
    """Deliver Azure Scheduled Events from this VM to every sink, with nothing lost.

    Settings come from SEB_ environment variables, .env and a TOML file; `seb config env` lists
    them all. Try `seb demo` first.
    """


def main() -> None:
    """Run a command and end the process with its exit code; errors go to standard error."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from bridge import system  # noqa: PLC0415  # hardly ever needed

        system.occupy_closed_streams()
    _write_utf8()
    try:
        code = seb.main(prog_name="seb", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE)
    except SebError as error:
        from sinks.shared.logs import complain  # noqa: PLC0415  # only on the way out

        complain(f"seb: {error}")
        sys.exit(error.exit_code)
    except SystemExit:
        # click ends with 1 if the reader of the output has closed it; here that is success.
        sys.exit(OK)
    except Exception as error:  # noqa: BLE001  # the last of the three places that catch broadly
        from bridge import system  # noqa: PLC0415  # hardly ever needed

        if not system.reader_has_gone(error):
            _report_bug(error)
            sys.exit(BUG)
        code = OK
    sys.exit(code if isinstance(code, int) else OK)


def _write_utf8() -> None:
    """Write redirected output as UTF-8 on every machine; a terminal keeps its own encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _report_bug(error: Exception) -> None:
    import traceback  # noqa: PLC0415  # only when it is needed

    traceback.print_exception(error)
    click.echo(f"seb: this is a bug: {type(error).__name__}; please report the trace", err=True)
