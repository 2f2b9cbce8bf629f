"""`seb console accept`: accepts the changed identity of VMs."""

from __future__ import annotations

import time

import click

from console.access.people import local_person
from console.cli import common
from console.fleet.contact import SilentTime
from console.vms.acceptance import accept


@click.command("accept")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@common.set_option
def command(*, vm_ids: tuple[str, ...], overrides: tuple[str, ...]) -> int:
    """Accept what VMs report of themselves: their names, scopes and sites.

    If a VM reports another name, scope or site than it is known by, that has no effect until it is
    accepted; the VM's page shows it. Compare with Azure first. It works on the database of the
    settings, with or without a running console. Exit codes: 0 each of them is accepted, 1 one was
    not: it is in no conflict, or the console does not know it.
    """
    settings = common.read_settings(overrides)
    with common.joined_database(settings) as database:
        done = accept(
            database,
            vm_ids,
            actor=local_person().name,
            now=time.time(),
            silent_time=SilentTime(seconds=settings.silent_after),
        )
    for vm_id, vm in done.items():
        place = "/".join(filter(None, (vm.subscription_id, vm.resource_group, vm.scale_set)))
        click.echo(f"{vm_id} is {vm.name} of {place or 'no scope'}, site {vm.site}", err=True)
    unknown = "the console knows no such VM, or it is in no conflict"
    return common.code_after(vm_ids, done, otherwise=unknown)
