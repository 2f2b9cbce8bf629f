"""Known VMs: each with its contact."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select

from console.db import rows
from console.db.bulk import portions
from console.db.schema.tables import assignment, vm
from console.db.vms.contact import contact_of
from console.fleet.candidates import PULL_SECONDS
from console.fleet.contact import Contact, Listening
from console.fleet.values.vm import HeardVm, Vm


class KnownVms:
    """Reads known VMs within one transaction."""

    def __init__(self, connection: Connection, now: float, listening: Listening) -> None:
        self.connection: Final = connection
        self.now: Final = now
        self.listening: Final = listening

    @cached_property
    def contact(self) -> ColumnElement[str]:
        """The SQL for the contact of each VM, made only where it is needed."""
        return contact_of(vm, self.now, self.listening).label("contact")

    def find_vm(self, vm_id: str) -> HeardVm | None:
        """Return the VM with this id, or None if nothing has come in from it."""
        return next(iter(self.vms_with_ids([vm_id])), None)

    def vms_with_ids(self, vm_ids: Iterable[str]) -> list[HeardVm]:
        """Return those of these VMs that are known."""
        found: list[HeardVm] = []
        for portion in portions(vm_ids):
            found += self.read(select(vm, self.contact).where(vm.c.vm_id.in_(portion)))
        return found

    def vms_with_contact(
        self, contacts: Iterable[Contact], *, limit: int | None = None
    ) -> list[HeardVm]:
        """Return the VMs with one of these contacts; the VM that was heard last comes first."""
        query = select(vm, self.contact).where(self.contact.in_(list(contacts)))
        return self.read(query.order_by(vm.c.heard_at.desc(), vm.c.sort_name).limit(limit))

    def changed_vms(self, since: int) -> list[HeardVm]:
        """Return the VMs that a transaction after `since` has changed."""
        assigned = select(assignment.c.subject).where(
            assignment.c.change_number > since, assignment.c.kind == "vm"
        )
        changed = or_(vm.c.change_number > since, vm.c.vm_id.in_(assigned))
        return self.read(select(vm, self.contact).where(changed))

    def vms_changed_by_time(self, then: float, before: Listening) -> list[HeardVm]:
        """Return the VMs whose contact or command channel has changed since `then` because time has
        passed. `before`: when consoles were connected until then.
        """
        polled = func.coalesce(vm.c.pulled_at, 0)
        return self.read(
            select(vm, self.contact).where(
                or_(
                    self.contact != contact_of(vm, then, before),
                    (polled > then - PULL_SECONDS) != (polled > self.now - PULL_SECONDS),
                )
            )
        )

    def vms_in_conflict(self) -> list[Vm]:
        """Return the VMs that report another identity than the one they are known as, or whose name
        another VM bears. Retired VMs are left out.
        """
        query = select(vm).where(vm.c.conflict_at.is_not(None), vm.c.retired_at.is_(None))
        return [rows.vm_of(row) for row in self.connection.execute(query)]

    def read(self, query: Select[Any]) -> list[HeardVm]:
        """Return the VMs of a query of their rows and `contact`."""
        return [
            HeardVm(vm=rows.vm_of(row), contact=row.contact)
            for row in self.connection.execute(query)
        ]
