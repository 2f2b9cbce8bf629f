"""The tags of a VM: its own, and those that an admin gave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from console.fleet.values.vm import Vm


def with_bound_tags(vm: Vm, tags: Mapping[str, str]) -> Vm:
    """Return the row of a VM with these tags from an admin, instead of earlier ones."""
    given_before = {name.casefold() for name in vm.bound_tags}
    kept = {name: value for name, value in vm.tags.items() if name.casefold() not in given_before}
    own = {**kept, **vm.replaced_tags}
    return replace(
        vm,
        bound_tags=tags,
        tags=merged_tags(own, tags),
        replaced_tags=replaced_tags(own, tags),
    )


def merged_tags(tags: Mapping[str, str], bound: Mapping[str, str]) -> dict[str, str]:
    """Return tags with those of an admin, which replace tags of the same name in any case: to
    Azure, and to groups, that is one name.
    """
    names = {name.casefold() for name in bound}
    return {name: value for name, value in tags.items() if name.casefold() not in names} | {**bound}


def replaced_tags(tags: Mapping[str, str], bound: Mapping[str, str]) -> dict[str, str]:
    """Return those of the tags that `merged_tags` leaves out because an admin gave others."""
    names = {name.casefold() for name in bound}
    return {name: value for name, value in tags.items() if name.casefold() in names}
