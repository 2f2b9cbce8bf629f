"""Shows an event before an approval, and asks for confirmation; approves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sinks.shared.errors import NO
from sinks.shared.text import escaped


def confirm_approval(event: Mapping[str, Any], vm: str | None, *, mark: str, yes: bool) -> None:
    """Show what an approval would do, and ask; `mark` is put after the name of the VM `vm`."""
    names = [escaped(str(name)) for name in event.get("resources") or ()]
    kind = escaped(str(event.get("eventType") or "event of unknown type"))
    not_before = event.get("notBefore")
    when = f"not before {escaped(str(not_before))}" if not_before else "at no given time"
    click.echo(f"{kind} {escaped(str(event.get('eventId')))}, {when}", err=True)
    is_there = vm is not None and escaped(vm).casefold() in map(str.casefold, names)
    if not names:
        click.echo("It lists no VM; Azure alone knows what it releases.", err=True)
    else:
        click.echo("An approval releases, now:", err=True)
        for name in names:
            own = is_there and name.casefold() == escaped(str(vm)).casefold()
            click.echo(f"  {name}{f'  ({mark})' if own else ''}", err=True)
    if not (yes or click.confirm(_question(len(names), mark, is_there=is_there), err=True)):
        click.echo("seb: nothing is approved: the answer was no", err=True)
        raise click.exceptions.Exit(NO)


def _question(count: int, mark: str, *, is_there: bool) -> str:
    """Return the question after the list: how many VMs, and whether the intended one is
    among them.
    """
    if not count:
        return "Approve?"
    if count == 1:
        return f"Release 1 VM, {mark if is_there else f'not {mark}'}?"
    among = f"{mark} among them" if is_there else f"{mark} not among them"
    return f"Release {count} VMs, {among}?"


def show_preparation(event: Mapping[str, Any], vm: str | None) -> None:
    """Show what a VM is to prepare for. It asks no question, because nothing is approved."""
    kind = escaped(str(event.get("eventType") or "event of unknown type"))
    where = "this VM" if vm is None else escaped(vm)
    click.echo(f"{kind} {escaped(str(event.get('eventId')))}: {where} prepares for it", err=True)
