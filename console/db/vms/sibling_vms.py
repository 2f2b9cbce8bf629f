"""The VMs that are like others, and may be away."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from sqlalchemy import ColumnElement, and_, or_, select

from console.db import rows
from console.db.schema.tables import vm
from console.db.vms.expectations import conditions_query
from console.db.vms.known_vms import KnownVms
from console.fleet.values.vm import HeardVm

_MAX_STEMS: Final = 100
"""How many kinds of names are looked for as siblings of one event: each is a condition in SQL."""


def vms_and_siblings(
    known: KnownVms, vm_ids: Iterable[str], *, limit: int, also: Collection[str] = ()
) -> list[HeardVm]:
    """Return these VMs, and the VMs like them or in `also` that are silent or stopped, or that
    an open event names. `limit` is for the further ones.

    VMs are alike in the same scale set, with the same tags, or in the same resource group if
    their names differ only in the number at the end.
    """
    mine = known.vms_with_ids(vm_ids)
    places = {each.vm.place for each in mine if each.vm.scale_set}
    tags = {rows.vm_row(each.vm)["tags"] for each in mine if each.vm.tags}
    families = {found for each in mine if (found := each.vm.name_family) is not None}
    if not places and not tags and not families and not also:
        return []
    query = select(vm, known.contact).where(
        or_(
            and_(vm.c.place.in_(places), vm.c.scale_set.is_not(None)),
            vm.c.tags.in_(tags),
            vm.c.vm_id.in_(also),
            *(
                and_(vm.c.place == place, vm.c.name_key.startswith(stem, autoescape=True))
                for place, stem in sorted(families)[:_MAX_STEMS]
            ),
        ),
        *_is_away_or_expecting(known),
    )
    most = limit + len(mine)
    return known.read(query.order_by(vm.c.sort_name, vm.c.vm_id).limit(most))


def away_or_expecting_vm_ids(known: KnownVms) -> set[str]:
    """Return the VMs that are silent or stopped, or that an open event names."""
    query = select(vm.c.vm_id).where(*_is_away_or_expecting(known))
    return set(known.connection.execute(query).scalars())


def _is_away_or_expecting(known: KnownVms) -> Sequence[ColumnElement[bool]]:
    names = conditions_query().subquery()
    expecting = vm.c.vm_id.in_(select(names.c.vm_id))
    is_away = known.contact.in_(("silent", "stopped"))
    return vm.c.retired_at.is_(None), or_(is_away, expecting)
