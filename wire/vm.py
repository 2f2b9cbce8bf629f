"""The identity of a VM, as every record has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from wire.fields import TEXT, TEXTS, VM_ID, WORD, Field, object_of, or_null, read_object, to_object


@dataclass(frozen=True, slots=True, kw_only=True)
class VmIdentity:
    """`data.vm`: the observing VM, with the values of IMDS's instance document."""

    vm_id: Annotated[str, Field(VM_ID, "Azure's unique id of the VM")]
    name: Annotated[str, Field(WORD, "compute.name: what Resources lists, not the host name")]
    resource_id: Annotated[str | None, Field(or_null(TEXT), "ARM id")] = None
    subscription_id: Annotated[str | None, Field(or_null(WORD), "Subscription")] = None
    resource_group: Annotated[str | None, Field(or_null(WORD), "Resource group")] = None
    location: Annotated[str | None, Field(or_null(WORD), "Azure region")] = None
    zone: Annotated[str | None, Field(or_null(TEXT), "Availability zone")] = None
    scale_set: Annotated[str | None, Field(or_null(TEXT), "Name of the scale set")] = None
    fault_domain: Annotated[str | None, Field(or_null(TEXT), "Platform fault domain")] = None
    update_domain: Annotated[str | None, Field(or_null(TEXT), "Platform update domain")] = None
    os_type: Annotated[str | None, Field(or_null(TEXT), "Linux or Windows")] = None
    vm_size: Annotated[str | None, Field(or_null(TEXT), "VM size")] = None
    tags: Annotated[Mapping[str, str], Field(TEXTS, "The tags that SEB_IDENTITY__TAGS names")] = (
        field(default_factory=dict)
    )

    @property
    def source(self) -> str:
        """The CloudEvents source: the ARM id, or a URN of the vmId if IMDS gives none."""
        return self.resource_id or f"urn:uuid:{self.vm_id}"

    def to_wire(self) -> dict[str, Any]:
        """Return the object for `data.vm` of a record."""
        return to_object(self)

    @classmethod
    def from_wire(cls, found: object) -> VmIdentity:
        """Read what `to_wire` wrote. Raises `FieldError`."""
        return read_object(cls, found)


VM: Final = object_of(VmIdentity, ref="vm")
"""The type of the field `vm`."""
