"""`seb console accept`."""

from __future__ import annotations

import time

import click

from console.access.acceptance import accept
from console.access.people import local_person
from console.cli import common
from console.db.opening import existing_database
from console.errors import RefusedError
from sinks.shared.errors import NO, OK


@click.command("accept")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@common.set_option
def command(*, vm_ids: tuple[str, ...], overrides: tuple[str, ...]) -> int:
    """Let what VMs say that they are count: their names, scopes and sites.

    A VM that says to be another than it was has no effect by that until it is accepted; its page
    shows what it says. Compare with Azure first. It works on the database of the settings, with or
    without a running console. Exit codes: 0 each of them is accepted, 1 one was not: it is in no
    conflict, or the console does not know it.
    """
    settings = common.read_settings(overrides)
    database = existing_database(settings)
    try:
        database.join()
        done = accept(
            database,
            vm_ids,
            actor=local_person().name,
            now=time.time(),
            silent_after=settings.silent_seconds,
        )
    except RefusedError as error:
        raise click.UsageError(str(error)) from None
    finally:
        database.close()
    for vm_id, vm in done.items():
        place = "/".join(filter(None, (vm.subscription_id, vm.resource_group, vm.scale_set)))
        click.echo(f"{vm_id} is {vm.name} of {place or 'no scope'}, site {vm.site}", err=True)
    left = [each for each in vm_ids if each not in done]
    for vm_id in left:
        click.echo(f"{vm_id}: the console knows no such VM, or it is in no conflict", err=True)
    return NO if left else OK
