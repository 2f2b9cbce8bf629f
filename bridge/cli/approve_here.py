"""Approves an event, or prepares for it, through the bridge that runs on this machine."""

from __future__ import annotations

import getpass
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from bridge.api import control
from bridge.cli.approve_remote import UNDER_WAY
from bridge.cli.remote_vm import FIELDS, find, not_scheduled
from bridge.store.approvals import Act
from sinks.shared.errors import NO, NO_REPLY, OK, UnreachableError
from sinks.shared.text import escaped

Confirm = Callable[[Mapping[str, Any], str | None], None]
"""Shows an event and the name of its VM, and ends the command if the person says no."""
AGAIN_SECONDS: Final = 0.3
"""How often the running bridge is asked how far an approval is."""


def ask_here(
    act: Act, event_id: str, directory: Path, *, person_reason: str | None, confirm: Confirm
) -> dict[str, Any]:
    """Ask the running bridge to approve or to prepare; return the first step, as a receipt shows
    it. `confirm` ends the command if the person says no.
    """
    shown = _ask(directory, {"ask": "pending"})
    event = find(shown["events"], event_id)
    if event is None:
        _refuse("unknown_event: no such event is pending on this VM")
    if objection := not_scheduled(event):
        _refuse(objection)
    confirm(event, shown["vm"])
    user = _user()
    answer = _ask(
        directory,
        {
            "ask": act,
            "event": event["eventId"],
            "user": user,
            "fingerprint": event["fingerprint"],
            "why": person_reason,
        },
    )
    approval = {"evt": event["eventId"], "actor": f"local:{user}", "resources": event["resources"]}
    return {**dict.fromkeys(FIELDS), **approval, **answer}


def follow(
    directory: Path,
    approval: dict[str, Any],
    show: Callable[[Mapping[str, Any]], None],
    *,
    until: str,
    seconds: float,
) -> int:
    """Show each step of an approval on this VM; return the exit code."""
    end = time.monotonic() + seconds
    shown = None
    if approval["state"] == "accepted":
        _ask_again(directory, approval)  # IMDS answers within a moment, and that is the next step
    while True:
        state = approval["state"]
        if state != shown:
            show(approval)
            shown = state
        if state in ("failed", "rejected"):
            return NO
        if state in ("confirmed", until):
            return OK
        if time.monotonic() >= end:
            click.echo(f"seb: {UNDER_WAY[state]}", err=True)
            return NO_REPLY
        _ask_again(directory, approval)


def _ask_again(directory: Path, approval: dict[str, Any]) -> None:
    threading.Event().wait(AGAIN_SECONDS)
    approval |= _ask(directory, {"ask": "approval", "jti": approval["jti"]})


def _ask(directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer = control.send(directory, request)
    except control.ControlError as error:
        _refuse(str(error))
    if answer is None:
        raise UnreachableError(
            f"no bridge is running with the state directory {directory}; start it, or set "
            "SEB_STATE_DIR to its own"
        )
    return answer


def _refuse(reason: str) -> NoReturn:
    click.echo(f"seb: {escaped(reason)}", err=True)
    raise click.exceptions.Exit(NO)


def show_step(data: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one step of an approval: its receipt as a line, or as JSON."""
    if as_json:
        click.echo(json.dumps(dict(data)))
        return
    reason = f": {data['reason']}" if data["reason"] else ""
    about = data["evt"] or "ping"
    because = f"  because: {data['rsn']}" if data["rsn"] else ""
    click.echo(escaped(f"{data['state']}{reason}  {about}  {data['jti']}{because}"))


def subject() -> str:
    """Return the user, as a command names it to another VM."""
    return f"{_user()}@{platform.node() or 'unknown'}"


def _user() -> str:
    """Return the user at the keyboard, as far as the system tells. With sudo it is the user who
    called sudo.
    """
    try:
        name = os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name, on POSIX or on Windows
        name = "unknown"
    return name if name.isprintable() else "unknown"
