"""Which event an id means: ids are unique within a scope only, and people know no scopes."""

from __future__ import annotations

from collections.abc import Iterable

from console.fleet.values.event import KnownEvent


def choose_event(several: Iterable[KnownEvent], scope: str | None = None) -> KnownEvent | None:
    """Return one of the events that share an id: the one in `scope`. Without a scope it is the one
    that people mean who know only the id.
    """
    found = (each for each in several if scope in (None, each.event.scope))
    return min(found, key=_by_age, default=None)


def _by_age(known: KnownEvent) -> tuple[bool, float, str]:
    """Return the sort value of events with the same id. Events with a VM that they name and that
    reports them come first, in the order in which these VMs became known. The others follow by the
    time of their first record.
    """
    ages = [each.name_since for each in known.named.values() if each.content_hash is not None]
    return not ages, min(ages, default=known.event.first_seen_at), known.event.scope
