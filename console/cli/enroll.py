"""`seb console enroll`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, TextIO

import click

from console.access import enrolment
from console.access.people import local_person
from console.cli import common
from console.config.settings import Settings
from console.errors import OK, ConfigurationError, RefusedError
from console.sources.enrolment import KEY_IS_MISSING, read_key
from console.store.opening import Database, database_url


@click.command("enroll")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@click.option(
    "--file",
    "listed",
    type=click.File(),
    metavar="LIST",
    help="A vmId per line; - reads standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--revoke", is_flag=True, help="End the secrets of these VMs now.")
@click.option("--revoke-all", is_flag=True, help="End the secrets of all VMs now.")
@common.set_option
def command(
    *,
    vm_ids: tuple[str, ...],
    listed: TextIO | None,
    as_json: bool,
    revoke: bool,
    revoke_all: bool,
    overrides: tuple[str, ...],
) -> int:
    """Print the lines of seb.env that let VMs speak with this console.

    They hold secrets that are good for their VM only, and stay the same until they are revoked:
    after --revoke VMID, enrolling the VM again prints new ones. It works on the database of the
    settings, with or without a running console, which heeds it within a second.
    """
    wanted = [*vm_ids, *_lines(listed)]
    if revoke_all and (wanted or revoke):
        raise click.UsageError("--revoke-all ends the secrets of all VMs; give no VMID with it")
    settings = common.read_settings(overrides)
    database = Database(database_url(settings))
    try:
        if revoke_all or revoke:
            _revoke(database, None if revoke_all else wanted)
        else:
            _enroll(database, settings, wanted, as_json=as_json)
    finally:
        database.close()
    return OK


def _enroll(database: Database, settings: Settings, vm_ids: list[str], *, as_json: bool) -> None:
    if settings.enroll_key_file is None:
        raise ConfigurationError(KEY_IS_MISSING)
    key = read_key(settings.enroll_key_file)
    _checked(vm_ids)
    database.join()
    found = enrolment.enroll(database, vm_ids, actor=local_person().name, now=time.time())
    items = enrolment.items_of(found, key=key, base=settings.base_url)
    click.echo(json.dumps({"items": items}, indent=2) if as_json else _as_lines(items))
    for note in _notes(settings):
        click.echo(f"note: {note}", err=True)


def _notes(settings: Settings) -> Iterable[str]:
    """What of the lines would not work."""
    if not settings.pull:
        yield (
            "this console does not serve the HTTPS command channel (SEB_CONSOLE_PULL is false); "
            "leave out the lines that begin with SEB_COMMANDS__"
        )
    if settings.public_url is None:
        yield "SEB_CONSOLE_PUBLIC_URL is not set; these addresses work on this machine only"
    elif not settings.public_url.startswith("https:"):
        yield "SEB_CONSOLE_PUBLIC_URL is not https; bridges on other machines refuse to ask there"


def _revoke(database: Database, vm_ids: list[str] | None) -> None:
    actor, now = local_person().name, time.time()
    if vm_ids is None:
        database.join()
        enrolment.revoke_all(database, actor=actor, now=now)
        click.echo("the secrets of all VMs are revoked; enroll each of them again", err=True)
        return
    _checked(vm_ids)
    database.join()
    enrolment.revoke(database, vm_ids, actor=actor, now=now)
    for vm_id in vm_ids:
        click.echo(f"{vm_id} is revoked; enroll it again for new secrets", err=True)


def _checked(vm_ids: list[str]) -> None:
    try:
        enrolment.checked(vm_ids)
    except RefusedError as error:
        raise click.UsageError(str(error)) from None


def _lines(listed: TextIO | None) -> Iterable[str]:
    """The vmIds of a list; empty lines and those that begin with # say nothing."""
    for line in listed or ():
        text = line.strip()
        if text and not text.startswith("#"):
            yield text


def _as_lines(items: list[dict[str, Any]]) -> str:
    blocks = []
    for item in items:
        head = [f"# VM {item['vmId']}"] if len(items) > 1 else []
        lines = [f"{name}={value}" for name, value in item["settings"].items()]
        blocks.append("\n".join([*head, *lines]))
    return "\n\n".join(blocks)
