"""The observer of a record: the VM, its place in a cluster, and the run of the bridge on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from wire.fields import TEXT, WORD, Field, object_of, or_null, to_object
from wire.vm import VM, VmIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`data.node`: where in a cluster the bridge runs, as configured."""

    cluster: Annotated[str | None, Field(or_null(TEXT), "Cluster")]
    node: Annotated[str | None, Field(or_null(TEXT), "Node")]
    pod: Annotated[str | None, Field(or_null(TEXT), "Pod")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRun:
    """`data.bridge`: the run of the bridge that made the observation."""

    version: Annotated[str, Field(WORD, "Version of the bridge")]
    instance_id: Annotated[str, Field(WORD, "One run of the bridge: new at each start")]
    site: Annotated[
        str | None,
        Field(
            WORD,
            "The site of the VM, as SEB_SITE names it; records of version 0.1.0 have none",
            is_optional=True,
        ),
    ] = None


NODE: Final = object_of(Node, ref="node", is_nullable=True)
"""The type of the field `node`."""
BRIDGE: Final = object_of(BridgeRun, ref="bridge")
"""The type of the field `bridge`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """The part that `data` of every record has: who observed it."""

    vm: Annotated[VmIdentity, Field(VM)]
    node: Annotated[Node | None, Field(NODE)]
    bridge: Annotated[BridgeRun, Field(BRIDGE)]

    def to_wire(self) -> dict[str, Any]:
        """Return the object for `data` of a record, or for a part of it."""
        return to_object(self)
