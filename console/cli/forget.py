"""`seb console forget`: removes what VMs have sent."""

from __future__ import annotations

from typing import Final

import click

from console.access.people import local_person
from console.cli import common
from console.db.snapshot import Snapshots
from console.fleet.contact import SilentTime
from console.turns.groups import Grouping
from console.vms.retirement import forget
from sinks.shared.errors import NO

_WHEN_AWAY: Final = (
    "forget it once it is back, or retire it first if it is gone for good (seb console retire)"
)


@click.command("forget")
@click.argument("vm_ids", metavar="VMID…", nargs=-1)
@click.option("--reason", required=True, metavar="TEXT", help="The reason; it is in the audit.")
@common.set_option
def command(*, vm_ids: tuple[str, ...], reason: str, overrides: tuple[str, ...]) -> int:
    """Remove everything that VMs have sent: their records, events, receipts and names.

    For a VM that somebody else has used to send records: end its secrets first (seb console enroll
    --revoke VMID, or its account at the broker), or what it sends next is stored again. What other
    VMs have reported, decisions and the audit stay. A VM that holds a turn or is away in its group
    is not removed, because another VM would be let go: retire it first if it is gone for good. It
    works on the database of the settings, with or without a running console. Exit codes: 0 each of
    them is removed, 1 one was not: the console does not know it, or it is away.
    """
    settings = common.read_settings(overrides)
    with common.joined_database(settings) as database:
        snapshots = Snapshots(
            database,
            silent_time=SilentTime(seconds=settings.silent_after),
            grouping=Grouping(settings.groups),
        )
        done = forget(snapshots, vm_ids, actor=local_person().name, reason=reason)
    for vm_id, count in done.removed.items():
        click.echo(f"{vm_id} is removed, with {count:,} records", err=True)
    for vm_id, why in done.kept.items():
        click.echo(f"{vm_id} is not removed: {why}; {_WHEN_AWAY}", err=True)
    unknown = [vm_id for vm_id in vm_ids if vm_id not in done.kept]
    code = common.code_after(unknown, done.removed, otherwise="the console knows no such VM")
    return NO if done.kept else code
