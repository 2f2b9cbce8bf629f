"""`seb console enroll`: makes the settings that connect VMs to the console."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import click

from console.access.people import local_person
from console.cli import common
from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, database_url
from console.errors import RefusedError
from console.fleet.contact import SilentTime
from console.ingest.vm_secrets import KEY_IS_MISSING, read_key
from console.vms import enrolment
from sinks.shared.errors import OK, ConfigurationError


@click.command("enroll")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@click.option(
    "--file",
    "listed",
    type=click.File(),
    metavar="LIST",
    help="A vmId per line, and after it, if you like, the VM's name, its ARM id, or both; - reads "
    "standard input.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Write a file for each VM, NAME.env (or VMID.env), instead of printing.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["env", "ansible", "windows"]),
    default="env",
    help="Lines of seb.env; a file of host_vars for the Ansible role; tables of seb.toml.",
)
@click.option("--resource-id", metavar="ID", help="The ARM id of the one VM: its name and scope.")
@click.option("--site", metavar="SITE", help="The site of all these VMs.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME=VALUE",
    help="A tag of all these VMs, for groups; without a value it is not given any more. May be "
    "repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--revoke", is_flag=True, help="End the secrets of these VMs now.")
@click.option("--revoke-all", is_flag=True, help="End the secrets of all VMs now.")
@common.set_option
def command(
    *,
    vm_ids: tuple[str, ...],
    listed: TextIO | None,
    out: Path | None,
    form: str,
    resource_id: str | None,
    site: str | None,
    tags: tuple[str, ...],
    as_json: bool,
    revoke: bool,
    revoke_all: bool,
    overrides: tuple[str, ...],
) -> int:
    """Print the lines of seb.env that let VMs speak with this console.

    They hold secrets that are good for their VM only, and stay the same until they are revoked:
    after --revoke VMID, enrolling the VM again prints new ones. It works on the database of the
    settings, with or without a running console, which heeds it within a second.

    Name, scope, site and tags that are given here count, whatever the VM says. What is not given
    comes from the VM: name, scope and site from its first contact, the tags from what it says now.
    """
    given = {**dict.fromkeys(vm_ids, ""), **dict(common.listed_vms(listed))}
    names, resource_ids = _names_and_ids(given)
    wanted = list(names)
    if resource_id is not None:
        if len(wanted) != 1:
            raise click.UsageError("--resource-id is of one VM; for several, put the ids in --file")
        resource_ids[wanted[0]] = resource_id
    if revoke_all and (wanted or revoke):
        raise click.UsageError("--revoke-all ends the secrets of all VMs; give no VMID with it")
    settings = common.read_settings(overrides)
    database = Database(database_url(settings))
    try:
        if revoke_all or revoke:
            _revoke(database, None if revoke_all else wanted)
        else:
            items = _enroll(
                database, settings, wanted, resource_ids=resource_ids, site=site, tags=_read(tags)
            )
            if out is not None:
                _write(items, names, out, form)
            elif as_json:
                click.echo(json.dumps({"items": items}, indent=2))
            else:
                click.echo(_as_text(items, form))
            for note in _notes(settings):
                click.echo(f"note: {note}", err=True)
    finally:
        database.close()
    return OK


def _names_and_ids(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names and the ARM ids that follow the vmIds."""
    names: dict[str, str] = {}
    resource_ids: dict[str, str] = {}
    for vm_id, text in given.items():
        several = text.split()
        ids = [each for each in several if each.startswith("/")]
        if ids:
            resource_ids[vm_id] = ids[0]
        names[vm_id] = " ".join(each for each in several if each not in ids)
    return names, resource_ids


def _read(tags: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE as a mapping."""
    found = {}
    for each in tags:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--tag is NAME=VALUE, not {each!r}")
        found[name] = value
    return found


def _enroll(
    database: Database,
    settings: ConsoleSettings,
    vm_ids: list[str],
    *,
    resource_ids: Mapping[str, str],
    site: str | None,
    tags: Mapping[str, str],
) -> list[dict[str, Any]]:
    if settings.enroll_key_file is None:
        raise ConfigurationError(KEY_IS_MISSING)
    key = read_key(settings.enroll_key_file)
    _require_vm_ids(vm_ids)
    database.join()
    found = enrolment.enroll(
        database,
        vm_ids,
        actor=local_person().name,
        now=time.time(),
        resource_ids=resource_ids,
        site=site,
        tags=tags or None,
        silent_time=SilentTime(seconds=settings.silent_after),
    )
    return enrolment.items_of(found, key=key, base=settings.base_url)


def _notes(settings: ConsoleSettings) -> Iterable[str]:
    """Yield a sentence for each of these settings that would not work."""
    if settings.pull:
        yield (
            "a VM refuses every command until its SEB_APPROVAL__TRUST names the file that `seb "
            "console trust` prints"
        )
    else:
        yield (
            "this console does not serve the HTTPS command channel (SEB_CONSOLE_PULL is false); "
            "leave out the lines that begin with SEB_COMMANDS__"
        )
    if settings.public_url is None:
        yield "SEB_CONSOLE_PUBLIC_URL is not set; these addresses work on this machine only"
    elif not settings.public_url.startswith("https:"):
        yield "SEB_CONSOLE_PUBLIC_URL is not https; bridges on other machines refuse to ask there"


def _revoke(database: Database, vm_ids: list[str] | None) -> None:
    actor = local_person().name
    now = time.time()
    if vm_ids is None:
        database.join()
        enrolment.revoke_all(database, actor=actor, now=now)
        click.echo("the secrets of all VMs are revoked; enroll each of them again", err=True)
        return
    _require_vm_ids(vm_ids)
    database.join()
    enrolment.revoke(database, vm_ids, actor=actor, now=now)
    for vm_id in vm_ids:
        click.echo(f"{vm_id} is revoked; enroll it again for new secrets", err=True)


def _require_vm_ids(vm_ids: list[str]) -> None:
    try:
        enrolment.require_vm_ids(vm_ids)
    except RefusedError as error:
        raise click.UsageError(str(error)) from None


def _write(items: list[dict[str, Any]], names: Mapping[str, str], out: Path, form: str) -> None:
    """Write a file for each VM, readable only by its owner because it has the VM's secrets."""
    file_names = [names.get(item["vmId"]) or item["vmId"] for item in items]
    for name in file_names:
        if not _NAME.fullmatch(name):
            raise click.UsageError(f"not a name for a file: {name!r}")
        if file_names.count(name) > 1:
            raise click.UsageError(f"two VMs have the name {name!r}")
    suffix, text_of = _FORMS[form]
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, item in zip(file_names, items, strict=True):
            target = out / f"{name}{suffix}"
            part = target.with_name(f"{target.name}.part")
            part.touch(mode=0o600)
            part.write_text(f"{text_of(item['settings'])}\n", encoding="utf-8")
            part.replace(target)
    except OSError as error:
        raise ConfigurationError(f"{out}: {error}") from None
    click.echo(f"{len(items)} files in {out}", err=True)


def _as_text(items: list[dict[str, Any]], form: str) -> str:
    _, text_of = _FORMS[form]
    blocks = []
    for item in items:
        head = [f"# VM {item['vmId']}"] if len(items) > 1 else []
        blocks.append("\n".join([*head, text_of(item["settings"])]))
    return "\n\n".join(blocks)


def _as_env(settings: Mapping[str, str]) -> str:
    """Return the settings as lines of seb.env."""
    return "\n".join(f"{name}={value}" for name, value in settings.items())


def _as_ansible(settings: Mapping[str, str]) -> str:
    """Return the settings as a file of host_vars: the variable of the role with these lines."""
    lines = (f"  {line}" for line in _as_env(settings).splitlines())
    return "\n".join(["seb_enrolment: |", *lines])


def _as_toml(settings: Mapping[str, str]) -> str:
    """Return the settings as tables of seb.toml, for a Windows machine."""
    tables: dict[str, list[str]] = {}
    for name, value in settings.items():
        *table, key = name.removeprefix("SEB_").lower().split("__")
        tables.setdefault(".".join(table), []).append(f"{key} = {json.dumps(value)}")
    return "\n\n".join("\n".join([f"[{table}]", *lines]) for table, lines in tables.items())


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FORMS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, str]], str]]]] = {
    "env": (".env", _as_env),
    "ansible": (".yml", _as_ansible),
    "windows": (".toml", _as_toml),
}
