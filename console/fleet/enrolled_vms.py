"""What an admin says of a VM when it is enrolled, in the VM's row."""

from __future__ import annotations

from dataclasses import replace

from console.fleet.arm_ids import names_by_kind
from console.fleet.values.vm import Vm
from console.fleet.vms import new_vm


def enrolled_vm(vm_id: str, resource_id: str | None, site: str | None, *, at: float) -> Vm:
    """Return the row of a VM that was not heard yet, from what an admin gave at a moment."""
    kinds = names_by_kind(resource_id)
    # The id of an instance of a scale set has its number, and not its name.
    name = None if "virtualmachinescalesets" in kinds else kinds.get("virtualmachines")
    vm = new_vm(vm_id, name, site or "", resource_id, "")
    return replace(vm, accepted_at=at if name else 0.0)


def with_enrolled_identity(vm: Vm, *, resource_id: str | None, site: str | None) -> Vm:
    """Return a VM as if it reported what an admin gave, so that this can be accepted."""
    reported = enrolled_vm(vm.vm_id, resource_id, site, at=0.0)
    known = vm.reported_as or vm.known_as
    if resource_id is not None:
        known = replace(
            known,
            name=known.name if reported.name == vm.vm_id else reported.name,
            subscription_id=reported.subscription_id,
            resource_group=reported.resource_group,
            scale_set=reported.scale_set or known.scale_set,
            resource_id=resource_id,
        )
    else:
        known = vm.known_as
    return replace(vm, reported_as=replace(known, site=site or known.site))
