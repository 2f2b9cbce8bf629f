"""The VM that the simulator plays. Every name and id here is invented."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedVm:
    """The identity of the simulated VM. A missing value is the empty string, as in IMDS."""

    name: str = "vm-0"
    vm_id: str = "3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90"
    subscription_id: str = "8e4c2a10-7f1b-4d6e-9c35-0a2b4c6d8e1f"
    resource_group: str = "simulated"
    location: str = "westeurope"
    zone: str = "1"
    scale_set: str = ""
    fault_domain: str = "0"
    update_domain: str = "0"
    os_type: str = "Linux"
    vm_size: str = "Standard_D2s_v5"
    tags: Mapping[str, str] = field(default_factory=lambda: {"environment": "simulated"})

    @property
    def resource_id(self) -> str:
        """The ARM id that IMDS would report."""
        group = f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
        if not self.scale_set:
            return f"{group}/providers/Microsoft.Compute/virtualMachines/{self.name}"
        instance = self.name.rpartition("_")[2]
        scale_set = f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{self.scale_set}"
        return f"{scale_set}/virtualMachines/{instance}"

    def compute(self) -> dict[str, Any]:
        """Return the object that `/metadata/instance/compute` answers."""
        return {
            "azEnvironment": "AzurePublicCloud",
            "location": self.location,
            "name": self.name,
            "osType": self.os_type,
            # Azure: domains are numbers, but IMDS writes them as strings.
            "platformFaultDomain": self.fault_domain,
            "platformUpdateDomain": self.update_domain,
            "resourceGroupName": self.resource_group,
            "resourceId": self.resource_id,
            "subscriptionId": self.subscription_id,
            "tags": ";".join(f"{name}:{value}" for name, value in self.tags.items()),
            "tagsList": [{"name": name, "value": value} for name, value in self.tags.items()],
            "vmId": self.vm_id,
            "vmScaleSetName": self.scale_set,
            "vmSize": self.vm_size,
            "zone": self.zone,
        }

    def instance(self) -> dict[str, Any]:
        """Return the object that `/metadata/instance` answers."""
        return {"compute": self.compute(), "network": {"interface": []}}


def neighbour(name: str, distance: int) -> str:
    """Return the name of the VM so many places after `name`: `db_0`, `db_1`, or without a number
    `db`, `db-1`.
    """
    if distance == 0:
        return name
    stem, number = re.fullmatch(r"(.*?)(\d*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{stem}{int(number) + distance}" if number else f"{name}-{distance}"
