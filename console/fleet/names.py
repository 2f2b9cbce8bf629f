"""Folds who VMs say they are: which VM bears a name, and what is in conflict."""

from __future__ import annotations

from dataclasses import replace

from console.fleet import vms
from console.fleet.batch import Changes, LoadedRows
from console.fleet.values.vm import Vm


class NameFold:
    """The part of `Fold` that is about names."""

    def __init__(self, loaded: LoadedRows, changes: Changes) -> None:
        self._loaded = loaded
        self._changes = changes

    def apply(self, before: Vm | None, vm: Vm, at: float) -> Vm:
        """Return what a VM is after it has become `vm`: with the time since which it bears its
        name, with its name withheld or not, and with its conflict. `at` is when its message came
        in.
        """
        silent_seconds = self._changes.silent_time.of(vm.interval)
        if before is None or not vms.bears_the_same_name(before, vm):
            vm = replace(vm, name_since=at)
        if _may_bear_a_name(before, vm, at, silent_seconds):
            vm = self._with_name(vm, at)
        if before is not None and (before.scope, before.place) != (vm.scope, vm.place):
            self._refresh_reports(vm)
            if before.scope != vm.scope:
                self._changes.scope_changed.setdefault(vm.vm_id, before.scope)
        return _with_conflict(vm, at)

    def _with_name(self, vm: Vm, at: float) -> Vm:
        """Return a VM, with its name withheld if another VM keeps that name. If this VM keeps it,
        the names of the others are withheld.
        """
        name = vms.borne_name(vm)
        others = self._loaded.bearers.setdefault(name, set())
        present = [
            other
            for other in (self._loaded.vms[each] for each in others - {vm.vm_id})
            if not other.withheld
            and vms.borne_name(other) == name
            and vms.keeps_its_name(other, at, self._changes.silent_time.of(other.interval))
        ]
        others.add(vm.vm_id)
        if not all(vms.is_before(vm, other) for other in present):
            return replace(vm, withheld=True)
        for other in present:
            after = _with_conflict(replace(other, withheld=True), at)
            self._loaded.vms[other.vm_id] = self._changes.vms[other.vm_id] = after
            self._changes.changed_vms.add(other.vm_id)
            self._refresh_reports(after)
        return replace(vm, withheld=False, name_since=at) if vm.withheld else vm

    def _refresh_reports(self, vm: Vm) -> None:
        """Update the reports and preparations of a VM that now bears another name, or is in another
        place.
        """
        for key, before in list(self._loaded.reports.items()):
            if before.vm_id != vm.vm_id:
                continue
            after = replace(before, scope=vm.scope, is_own=vm.is_named_by(before.report))
            self._changes.reported_events |= {before.key, after.key}
            if after != before:
                self._loaded.reports[key] = self._changes.reports[key] = after
        for key, prepared in list(self._loaded.preparations.items()):
            if prepared.vm_id == vm.vm_id:
                self._loaded.preparations[key] = replace(prepared, scope=vm.scope)
                if key in self._changes.preparations:
                    self._changes.preparations[key] = self._loaded.preparations[key]


def _may_bear_a_name(before: Vm | None, vm: Vm, at: float, silent_seconds: float) -> bool:
    """Check whether a VM may bear a name that it did not bear before: it is new, it has come back,
    or its name was withheld.
    """
    if before is None or vm.withheld or not vms.bears_the_same_name(before, vm):
        return True
    if before.accepted_at != vm.accepted_at:
        return True
    return not vms.keeps_its_name(before, at, silent_seconds) and vms.keeps_its_name(
        vm, at, silent_seconds
    )


def _with_conflict(vm: Vm, at: float) -> Vm:
    """Return a VM with the time at which its conflict began, if it has one."""
    if vm.reported_as is None and not vm.withheld:
        return vm if vm.conflict_at is None else replace(vm, conflict_at=None)
    return vm if vm.conflict_at is not None else replace(vm, conflict_at=at)
