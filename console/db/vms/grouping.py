"""Which groups VMs belong to, by the columns that the settings use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, func, literal, select

from console.db.bulk import rows_in
from console.db.schema.tables import vm
from console.turns.groups import TAGS, Group, Grouping, Member, may_belong_to

_NAME: Final = "name"


def columns_of(grouping: Grouping, table: Any) -> list[ColumnElement[Any]]:
    """Return the columns that the settings use; `table` is that of VMs, or an alias of it."""
    return [table.c[name] for name in grouping.columns]


def keys_of(grouping: Grouping, values: Sequence[Any]) -> frozenset[str]:
    """Return the keys of a VM's groups, from the values of `columns_of`."""
    seen = tuple(values)
    return grouping.keys(seen, lambda: _member(grouping.columns, seen))


def possible_keys(
    grouping: Grouping, values: Sequence[Any], groups: Iterable[Group]
) -> frozenset[str]:
    """Return the keys of those of these groups to which a VM may belong that no record has
    described, from the values of `columns_of`: it may have tags, a zone and a location.
    """
    member = _member(grouping.columns, values)
    return frozenset(each.key for each in groups if may_belong_to(each, member))


def keys_among(
    connection: Connection, grouping: Grouping, vm_ids: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return the keys of the groups of those of these VMs that are not retired, by vmId."""
    query = select(vm.c.vm_id, *columns_of(grouping, vm)).where(vm.c.retired_at.is_(None))
    found = rows_in(connection, query, vm.c.vm_id, vm_ids)
    return {row[0]: keys_of(grouping, row[1:]) for row in found}


def groups_now(
    connection: Connection, grouping: Grouping, *conditions: ColumnElement[bool]
) -> dict[str, Group]:
    """Return every group that has a VM, with its size, of the VMs that are not retired and fulfil
    `those`.
    """
    if not grouping.settings:
        return {}
    columns = columns_of(grouping, vm)
    # VMs with the same values in these columns become one row; with the name among them few do.
    is_each = _NAME in grouping.columns
    wanted: Any = select(literal(1) if is_each else func.count(), *columns)
    wanted = wanted.where(vm.c.retired_at.is_(None), *conditions)
    if not is_each:
        wanted = wanted.group_by(*columns)
    sizes: dict[str, int] = {}
    for count, *values in connection.execute(wanted):
        for key in keys_of(grouping, values) if count else ():
            sizes[key] = sizes.get(key, 0) + count
    return grouping.groups(sizes)


def _member(columns: Sequence[str], values: Sequence[Any]) -> Member:
    found: Mapping[str, Any] = dict(zip(columns, values, strict=True))
    tags = json.loads(found[TAGS]) if TAGS in found else {}
    rest = {name: value or "" for name, value in found.items() if name != TAGS}
    return Member(vm_id="", tags=tags, **{_NAME: "", **rest})
