"""The control plane's half of `seb approve`: sign, send, and show the VM's answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from bridge.cli.key_files import read_private
from bridge.cli.remote_vm import find, is_what_it_shows, not_scheduled, pending, receipts
from bridge.config.load import Configuration, SinkSpec
from sinks.base import CommandSender, SinkError, SinkRejected
from sinks.shared.errors import (
    NO,
    NOT_PERMITTED,
    OK,
    ConfigurationError,
    NotPermittedError,
    TryLaterError,
    UnreachableError,
)
from wire.command import Command, sign
from wire.keys import KeyFileError, SigningKey

T = TypeVar("T")

STATE_SECONDS: Final = 5.0
"""How long to wait for the VM's retained state: the broker has it at once, or not at all."""
NEWS_SECONDS: Final = 2.0
MIN_LIFE_SECONDS: Final = 60
"""The shortest validity of a command, in seconds: clocks differ."""
MAX_LIFE_SECONDS: Final = 300
UNDER_WAY: Final = {
    "accepted": "the bridge has accepted it, and keeps trying to reach Azure",
    "posted": "Azure has taken it, and the event has not started yet; the bridge follows it",
}
"""The last line after the wait, by the last state of the approval."""


_OPTIONS: Final = (
    click.option("--to", "vm_id", metavar="VMID", help="The VM to send a signed command to."),
    click.option(
        "--key",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The private key that signs it.",
    ),
    click.option(
        "--sink", "sink_name", metavar="NAME", help="The configured sink to send it through."
    ),
)


def remote_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options of a command that can be sent to another VM."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The VM to ask, its channel, and how to show the answers."""

    vm_id: str
    key_file: Path
    sink: str | None
    seconds: float
    config: Configuration
    show: Callable[[Mapping[str, Any]], None]
    subject: str
    until: str
    """The state of the approval that ends the wait: posted or confirmed."""

    @property
    def lifetime(self) -> int:
        """The validity of the command, in seconds: a little more than `--wait`."""
        return min(max(math.ceil(self.seconds), MIN_LIFE_SECONDS), MAX_LIFE_SECONDS)


def approve_remotely(
    target: Target,
    event_id: str,
    *,
    person_reason: str | None,
    confirm: Callable[[Mapping[str, Any], str | None], None],
    prepare: bool = False,
) -> int:
    """Ask the VM's bridge to approve an event, or to prepare for it; return the exit code.
    `confirm` ends the command if the person says no.
    """
    key = _key(target.key_file)
    with _sender(target) as sender:
        shown = pending(sender, seconds=min(target.seconds, STATE_SECONDS))
        if shown is None:
            raise TryLaterError(
                f"the broker has no state of VM {target.vm_id}; see that its id is written as in "
                "records, that SEB_SITE is the fleet's, and that its bridge runs"
            )
        event = find(shown.events, event_id)
        if event is None:  # it may be on its way
            shown = pending(sender, seconds=NEWS_SECONDS) or shown
            event = find(shown.events, event_id)
        if event is None:
            return _refused(f"unknown_event: no such event is pending on VM {target.vm_id}")
        if objection := not_scheduled(event):
            return _refused(objection)
        if not is_what_it_shows(event):
            return _refused(
                "the event that the broker shows does not match its fingerprint: the message was "
                "changed, or that bridge has version 0.1.0; approve on the VM itself"
            )
        confirm(event, shown.vm)
        command = Command(
            subject=target.subject,
            act="prepare" if prepare else "approve",
            event_id=str(event["eventId"]),
            fingerprint=str(event.get("fingerprint")),
            person_reason=person_reason,
        )
        return _carry_out(target, sender, command, key)


def ping(target: Target) -> int:
    """Test the way to the VM's bridge and back; return the exit code. Raises `SebError`."""
    key = _key(target.key_file)
    with _sender(target) as sender:
        command = Command(subject=target.subject, act="ping")
        return _carry_out(target, sender, command, key)


def _carry_out(target: Target, sender: CommandSender, command: Command, key: SigningKey) -> int:
    """Send the command, show each receipt, and end with the first that settles it."""
    now = datetime.now(UTC)
    token = sign(command, key, vm_id=target.vm_id, now=now, lifetime=target.lifetime)
    if not sender.send(token, lifetime=target.lifetime):
        raise TryLaterError(
            "the broker reports that no client is subscribed to the commands of this VM",
            remedy="see that its bridge runs, and that its mqtt sink has COMMANDS=true",
        )
    last = None
    for receipt in receipts(sender, command.jti, seconds=target.seconds):
        target.show(receipt)
        code = verdict(receipt, is_ping=command.event_id is None, until=target.until)
        if code is not None:
            return code
        last = str(receipt["state"])
    void = (now + timedelta(seconds=target.lifetime)).strftime("%H:%M:%S")
    if last is not None:
        raise TryLaterError(UNDER_WAY.get(last, UNDER_WAY["accepted"]))
    raise TryLaterError(
        f"no reply within {target.seconds:g} s; the command is void from {void} UTC on. A bridge "
        "answers only keys that it trusts: see that SEB_APPROVAL__TRUST has this one"
    )


def verdict(receipt: Mapping[str, Any], *, is_ping: bool, until: str) -> int | None:
    """Return the exit code that a receipt means; None if more is to come."""
    match receipt["state"]:
        case "confirmed":
            return OK
        case "posted":
            return OK if until == "posted" else None
        case "accepted":
            return OK if is_ping else None
        case "rejected" if receipt["reason"] == "replayed":
            # Its jti is new, so this command arrived there twice, as QoS 1 allows.
            return None
        case "rejected" if receipt["reason"] == "not_allowed":
            return NOT_PERMITTED
        case _:
            return NO


def _refused(reason: str) -> int:
    click.echo(f"seb: {reason}", err=True)
    return NO


def _key(path: Path) -> SigningKey:
    try:
        return read_private(path)
    except KeyFileError as error:
        raise ConfigurationError(str(error)) from None


@contextmanager
def _sender(target: Target) -> Iterator[CommandSender]:
    """Open a sender; its failures become errors of the command."""
    spec, sender = _chosen(target)
    try:
        sender.open()
        yield sender
    except SinkRejected as error:
        raise NotPermittedError(f"{spec.name}: {error}") from None
    except SinkError as error:
        raise UnreachableError(f"{spec.name}: {error}") from None
    finally:
        sender.close()


def _chosen(target: Target) -> tuple[SinkSpec, CommandSender]:
    found = []
    for spec in target.config.sinks:
        if target.sink in (None, spec.name):
            sender = spec.sink_class.sender(
                spec.settings, site=target.config.settings.site, vm_id=target.vm_id
            )
            if sender is not None:
                found.append((spec, sender))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(spec.name for spec, _ in found)
        raise ConfigurationError(f"several sinks carry commands; choose one with --sink: {names}")
    which = f"the sink {target.sink}" if target.sink else "no configured sink"
    raise ConfigurationError(
        f"{which} {'does not carry' if target.sink else 'carries'} commands; configure an mqtt "
        "sink (SEB_SINK__MQTT__HOST) to reach the broker"
    )
