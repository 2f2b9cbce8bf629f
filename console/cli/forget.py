"""`seb console forget`: removes what VMs have sent."""

from __future__ import annotations

import time

import click

from console.access.people import local_person
from console.cli import common
from console.fleet.contact import SilentTime
from console.vms.retirement import forget


@click.command("forget")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@click.option("--reason", required=True, metavar="TEXT", help="The reason; it is in the audit.")
@common.set_option
def command(*, vm_ids: tuple[str, ...], reason: str, overrides: tuple[str, ...]) -> int:
    """Remove everything that VMs have sent: their records, events, receipts and names.

    For a VM that somebody else has used to send records: end its secrets first (seb console enroll
    --revoke VMID, or its account at the broker), or what it sends next is stored again. What other
    VMs have reported, decisions and the audit stay. It works on the database of the settings, with
    or without a running console. Exit codes: 0 each of them is removed, 1 the console does not know
    one.
    """
    settings = common.read_settings(overrides)
    with common.joined_database(settings) as database:
        done = forget(
            database,
            vm_ids,
            actor=local_person().name,
            reason=reason,
            now=time.time(),
            silent_time=SilentTime(seconds=settings.silent_after),
        )
    for vm_id, count in done.items():
        click.echo(f"{vm_id} is removed, with {count:,} records", err=True)
    return common.code_after(vm_ids, done, otherwise="the console knows no such VM")
