"""`seb console retire`: says that VMs are gone."""

from __future__ import annotations

import time
from typing import TextIO

import click

from console.access.people import local_person
from console.cli import common
from console.vms.retirement import retire


@click.command("retire")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@click.option(
    "--file", "listed", type=click.File(), metavar="LIST", help="A vmId per line; - reads stdin."
)
@click.option("--reason", required=True, metavar="TEXT", help="The reason; it is in the audit.")
@common.set_option
def command(
    *, vm_ids: tuple[str, ...], listed: TextIO | None, reason: str, overrides: tuple[str, ...]
) -> int:
    """Say that VMs are gone: the console does not wait for them any more.

    A VM that is heard again is back by itself. It works on the database of the settings, with or
    without a running console. Exit codes: 0 each of them is retired, 1 one was not: the console
    does not know it.
    """
    wanted = [*vm_ids, *(vm_id for vm_id, _ in common.listed_vms(listed))]
    with common.joined_database(common.read_settings(overrides)) as database:
        done = retire(database, wanted, actor=local_person().name, reason=reason, now=time.time())
    for vm_id in done:
        click.echo(f"{vm_id} is retired", err=True)
    unknown = "the console knows no such VM, or it is retired already"
    return common.code_after(wanted, done, otherwise=unknown)
