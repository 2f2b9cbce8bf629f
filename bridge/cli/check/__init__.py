"""`seb check`: checks every step, one line each."""

from __future__ import annotations

import json
import sys
from typing import Final

import click

from bridge.cli import common
from bridge.cli.check.steps import CheckLine, check_lines
from sinks.base import Check
from sinks.shared.errors import CONFIGURATION, OK, UNREACHABLE, ConfigurationError
from sinks.shared.text import escaped

_WORDS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("check")
@click.option("--offline", is_flag=True, help="Check settings and state only; no network.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per step; their fields are stable."
)
@common.set_option
def command(*, offline: bool, as_json: bool, overrides: tuple[str, ...]) -> None:
    """Check everything that could go wrong, one line per step: ok, warn or FAIL.

    If a bridge runs here, it is asked what each sink last answered. Exit codes: 0 nothing failed,
    69 IMDS or a sink is unreachable, or a sink of the running bridge fails, 78 settings, trusted
    keys or state. On a VM that never asked for Scheduled Events before, this turns them on.
    """
    steps = []
    try:
        config = common.read_configuration(overrides)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            check = Check.fail(line, "see `seb config env` for every setting")
            steps.append(CheckLine(about="settings", check=check))
            _show(steps[-1], as_json=as_json)
    else:
        for step in check_lines(config, offline=offline, on_slow_part=_wait):
            steps.append(step)
            _show(step, as_json=as_json)
    sys.stdout.flush()
    common.exit_with(_exit_code(steps))


def _wait(what: str) -> None:
    """Print which slow step has begun, but only on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"      {what} ...", err=True)


def _show(step: CheckLine, *, as_json: bool) -> None:
    check = step.check
    if as_json:
        line = {
            "step": step.about,
            "level": check.level,
            "text": check.text,
            "remedy": check.remedy,
        }
        click.echo(json.dumps(line))
        return
    word = click.style(_WORDS[check.level], fg=_COLOURS[check.level])
    click.echo(f"{word}  {step.about}: {escaped(check.text)}")
    if check.remedy and check.level != "ok":
        click.echo(f"      -> {escaped(check.remedy)}")


def _exit_code(steps: list[CheckLine]) -> int:
    failed = {step.about for step in steps if step.check.level == "fail"}
    if failed & {"settings", "state", "approval"}:
        return CONFIGURATION
    return UNREACHABLE if failed else OK
