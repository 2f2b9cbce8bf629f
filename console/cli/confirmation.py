"""Shows an event before a decision about it, and asks for confirmation; decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from console.errors import RefusedError
from console.fleet.decisions import MAX_REASON_CHARACTERS
from console.fleet.differences import differences, names_of, seen_of
from sinks.shared.errors import NO
from sinks.shared.text import plain


def checked_reason(reason: str, *, yes: bool) -> str:
    """Return the reason, trimmed. Raises `click.UsageError` if it is not valid, or if the question
    could not be answered.
    """
    reason = reason.strip()
    if not (0 < len(reason) <= MAX_REASON_CHARACTERS and reason.isprintable()):
        raise click.UsageError(f"--reason is one line of 1 to {MAX_REASON_CHARACTERS} characters")
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError("standard input is not a terminal; confirm with --yes")
    return reason


def show(event: Mapping[str, Any], *, releases: bool) -> None:
    """Print the event and every VM that it lists, on standard error."""
    names = names_of(event)
    kind = plain(event["eventType"] or "event of unknown type")
    when = event["notBefore"]
    until = f"not before {plain(when)}" if when else "at no given time"
    click.echo(
        f"{kind} {plain(event['eventId'])}, {plain(event['eventStatus'])}, {until}", err=True
    )
    if not names:
        click.echo("It lists no VM; Azure alone knows what it releases.", err=True)
        return
    click.echo("An approval releases, now:" if releases else "It is left for:", err=True)
    for name in names:
        click.echo(f"  {plain(name)}", err=True)


def ask(question: str, *, yes: bool) -> None:
    """Ask for confirmation; end the command with exit code 1 if the answer is no."""
    if not (yes or click.confirm(question, err=True)):
        click.echo("seb console: nothing is decided: the answer was no", err=True)
        raise click.exceptions.Exit(NO)


def refuse_changed(event: Mapping[str, Any], fingerprint: str) -> None:
    """Raise `RefusedError` if the event does not have this fingerprint."""
    if fingerprint != event["fingerprint"]:
        raise RefusedError(
            "event_changed: the event is not the one of --fingerprint any more; it is now as above"
        )


def explain(error: RefusedError, shown: Mapping[str, Any]) -> NoReturn:
    """Raise a refusal again, after printing what has changed since the event was shown."""
    now = error.answer.get("event", error.answer)
    if isinstance(now, Mapping) and "fingerprint" in now:
        for each in differences(seen_of(shown), seen_of(now)):
            before = _value(each.before)
            after = _value(each.now)
            click.echo(f"  {each.field}: {before} -> {after}", err=True)
    raise error


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(plain(each) for each in value) or "none"
    return plain(value)
