"""`seb console groups`: the groups of the settings, explained before they are trusted."""

from __future__ import annotations

import click

from console.cli import common
from console.config.groups import GroupSettings
from console.db.opening import existing_database
from console.db.snapshot import Snapshots
from console.db.vms import WantedVms
from console.errors import OK
from console.fleet.values import Vm
from console.turns.explain import members, sentence
from console.turns.groups import Member, groups_of, key_of

_MOST = 100_000


@click.group("groups")
def command() -> None:
    """Look at the groups of SEB_CONSOLE_GROUPS. No event waits for its group yet."""


@command.command("check")
@common.set_option
def check(overrides: tuple[str, ...]) -> int:
    """Explain each group in a sentence, with its members today.

    It reads the database of the settings, with or without a running console. Exit codes: 0 fine, 78
    a group is wrong.
    """
    settings = common.read_settings(overrides)
    if not settings.groups:
        click.echo("no group is set; see SEB_CONSOLE_GROUPS and SEB_CONSOLE_GROUPS_FILE")
        return OK
    database = existing_database(settings)
    try:
        snapshots = Snapshots(database, silent_after=settings.silent_after)
        with snapshots.take() as snapshot:
            heard = snapshot.vms.page(WantedVms(), limit=_MOST)
    finally:
        database.close()
    fleet = [member_of(each.vm) for each in heard if each.contact != "retired"]
    for rule in settings.groups:
        for line in _lines(rule, fleet):
            click.echo(line)
    return OK


def member_of(vm: Vm) -> Member:
    """A VM as groups see it."""
    return Member(
        vm_id=vm.vm_id,
        name=vm.name,
        site=vm.site,
        location=vm.location or "",
        zone=vm.zone or "",
        scale_set=vm.scale_set or "",
        resource_group=vm.resource_group or "",
        tags=vm.tags,
    )


def _lines(rule: GroupSettings, fleet: list[Member]) -> list[str]:
    found = groups_of([rule], fleet)
    lines = [sentence(rule)]
    for group in found.values():
        names = sorted(each.name for each in fleet if key_of(rule, each) == group.key)
        lines.append(f"  {members(group, names)}")
    return lines if found else [*lines, "  no VM of today belongs to it"]
