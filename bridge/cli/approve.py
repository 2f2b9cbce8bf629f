"""`seb approve`: a person approves an event that was shown, here or from a control plane."""

from __future__ import annotations

import getpass
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from bridge.api import control
from bridge.cli import common
from bridge.cli.agreement import agree
from bridge.cli.approve_remote import UNDER_WAY, Target, approve_from_afar, ping
from bridge.cli.remote_vm import FIELDS, find, not_scheduled
from bridge.store.approvals import Act
from sinks.shared.errors import NO, NO_REPLY, OK, UnreachableError
from sinks.shared.number import Number
from sinks.shared.text import escaped

Agree = Callable[[Mapping[str, Any], str | None], None]
"""Shows an event and the name of its VM, and ends the command if the person says no."""

MAX_TEXT: Final = 500
AGAIN_SECONDS: Final = 0.3
"""How often the running bridge is asked how far an approval is."""


@click.command("approve")
@click.argument("event_id", required=False)
@click.option("--to", "vm_id", metavar="VMID", help="The VM to send a signed command to.")
@click.option(
    "--key", metavar="FILE", type=click.Path(path_type=Path), help="The private key that signs it."
)
@click.option("--sink", "sink_name", metavar="NAME", help="The configured sink to send it through.")
@click.option(
    "--wait",
    "seconds",
    type=Number(0, 3600, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the approval is confirmed.",
)
@click.option(
    "--until",
    type=click.Choice(["posted", "confirmed"]),
    default="confirmed",
    show_default=True,
    metavar="STATE",
    help="What to wait for: posted (Azure has taken it) or confirmed (the event has started).",
)
@click.option(
    "--ping", "only_ping", is_flag=True, help="Approve nothing; test the way to the VM and back."
)
@click.option(
    "--reason",
    "why",
    metavar="TEXT",
    help="Why, such as the number of a change; it is in every receipt.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per step.")
@common.set_option
def command(
    *,
    event_id: str | None,
    vm_id: str | None,
    key: Path | None,
    sink_name: str | None,
    seconds: float,
    until: str,
    only_ping: bool,
    why: str | None,
    yes: bool,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Approve the pending event EVENT_ID: Azure starts it now instead of at its time.

    An approval releases every VM that the event lists, so they are shown first.

    On the VM itself it asks the running bridge. With --to and --key it signs a command and sends
    it over the broker of a configured sink, which the VM's bridge has to trust and to listen on.
    """
    _require(event_id, vm_id, key, only_ping=only_ping, why=why)
    if not (yes or only_ping or sys.stdin.isatty()):
        raise click.UsageError("standard input is not a terminal; confirm with --yes")
    show = partial(show_step, as_json=as_json)
    if vm_id is None:
        directory = common.read_configuration(overrides).settings.state_dir
        agreement = partial(agree, mark="this VM", yes=yes)
        approval = ask_here("approve", str(event_id), directory, why=why, agree=agreement)
        code = follow(directory, approval, show, until=until, seconds=seconds)
        raise click.exceptions.Exit(code)
    target = Target(
        vm_id=vm_id,
        key_file=key or Path(),
        sink=sink_name,
        seconds=seconds,
        config=common.read_configuration(overrides),
        show=show,
        until=until,
        subject=subject(),
    )
    agreement = partial(agree, mark="the VM of --to", yes=yes)
    code = (
        approve_from_afar(target, event_id, why=why, agree=agreement) if event_id else ping(target)
    )
    raise click.exceptions.Exit(code)


def _require(
    event_id: str | None, vm_id: str | None, key: Path | None, *, only_ping: bool, why: str | None
) -> None:
    if only_ping and event_id is not None:
        raise click.UsageError("--ping approves nothing; leave EVENT_ID out")
    if not only_ping and not event_id:
        raise click.UsageError("name the event: EVENT_ID, as records have it")
    if (vm_id is None) != (key is None):
        raise click.UsageError("--to and --key go together: a command is signed")
    if only_ping and vm_id is None:
        raise click.UsageError("--ping needs --to and --key")
    if why is not None and not (0 < len(why) <= MAX_TEXT and why.isprintable()):
        raise click.UsageError(f"--reason is one line of at most {MAX_TEXT} characters")


def ask_here(
    act: Act, event_id: str, directory: Path, *, why: str | None, agree: Agree
) -> dict[str, Any]:
    """Ask the running bridge to approve or to prepare; return the first step, as a receipt shows
    it. `agree` ends the command if the person says no.
    """
    shown = _ask(directory, {"ask": "pending"})
    event = find(shown["events"], event_id)
    if event is None:
        _refuse("unknown_event: no such event is pending on this VM")
    if objection := not_scheduled(event):
        _refuse(objection)
    agree(event, shown["vm"])
    user = _user()
    answer = _ask(
        directory,
        {
            "ask": act,
            "event": event["eventId"],
            "user": user,
            "fingerprint": event["fingerprint"],
            "why": why,
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


def _refuse(why: str) -> NoReturn:
    click.echo(f"seb: {escaped(why)}", err=True)
    raise click.exceptions.Exit(NO)


def show_step(data: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one step of an approval: its receipt as a line, or as JSON."""
    if as_json:
        click.echo(json.dumps(dict(data)))
        return
    reason = f": {data['reason']}" if data["reason"] else ""
    about = data["evt"] or "ping"
    why = f"  because: {data['rsn']}" if data["rsn"] else ""
    click.echo(escaped(f"{data['state']}{reason}  {about}  {data['jti']}{why}"))


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
