"""The fleet in numbers, as the API and the pages show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from console.fleet.contact import CONTACTS
from console.fleet.model import Count, Model, Moment
from console.fleet.values.vm import Condition

CONDITIONS: Final = get_args(Condition)


class Source(Model):
    """A source of records, and whether this console is connected to it."""

    name: str
    kind: str
    connected: bool
    last_record_at: Moment | None
    trouble: str | None
    quarantined: Count


class Contacts(Model):
    """How many VMs have each contact: how their bridges are heard."""

    total: Count
    heard: Count
    late: Count
    silent: Count
    stopped: Count
    learning: Count
    retired: Count


class Conditions(Model):
    """How many VMs have each condition: what is coming to them."""

    clear: Count
    scheduled: Count
    started: Count


class Overview(Model):
    """The fleet in numbers."""

    now: Moment
    vms: Contacts
    conditions: Conditions
    decisions_due: Count
    sources: list[Source]


def overview(
    contacts: Mapping[str, int],
    conditions: Mapping[str, int],
    *,
    due: int,
    now: float,
    sources: Sequence[Source],
) -> Overview:
    """Return the answer of `/api/v1/overview`, from the numbers of VMs by contact and by
    condition.
    """
    vms = {name: contacts.get(name, 0) for name in CONTACTS}
    total = sum(vms.values())
    expecting = {name: conditions.get(name, 0) for name in CONDITIONS[1:]}
    return Overview(
        now=now,
        vms=Contacts(total=total, **vms),
        conditions=Conditions(clear=total - sum(expecting.values()), **expecting),
        decisions_due=due,
        sources=list(sources),
    )
