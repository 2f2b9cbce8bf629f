"""What a person asks for, and whether it can be decided: values in, one word out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from console.access.people import Person
from console.decisions.refused import Why
from console.fleet.commands import working
from console.fleet.values import Decision, Sighting
from console.fleet.witnesses import Witness
from console.store.decisions import EventNow

LONGEST_REASON: Final = 300
"""Characters; a token's text may have 512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks for, of an event as the person saw it."""

    person: Person
    event_id: str
    fingerprint: str
    reason: str
    is_of_own_site: bool
    """Whether the event concerns VMs of the person's site alone, or the person has every site."""
    can_sign: bool
    """Whether the console has a key."""
    witnesses: Sequence[Witness]
    """VMs that can be asked now, the best first."""


def objection(asked: Request, now: EventNow | None, standing: Decision | None) -> Why | None:
    """Why nothing can be decided; None if something can. `standing` is the open decision."""
    why = _objection_to_person(asked, now)
    if why is not None or now is None:
        return why or "unknown"
    if _is_under_way(now, standing):
        return "under_way"
    same = now.shown.facts.fingerprint == asked.fingerprint
    return None if same and now.event.state == "scheduled" else "changed"


def _objection_to_person(asked: Request, now: EventNow | None) -> Why | None:
    if "approver" not in asked.person.roles:
        return "role"
    if now is not None and not asked.is_of_own_site:
        return "site"
    return None if is_reason(asked.reason) else "reason"


def is_reason(text: str) -> bool:
    """Whether a text can be the reason of a decision: one line, and not too long."""
    return 0 < len(text) <= LONGEST_REASON and text.isprintable() and not text.isspace()


def first_of_two(standing: Decision | None, asked: Request) -> Decision | None:
    """The first person's approval of just this, if it waits for a second one."""
    if standing is None or standing.state != "second":
        return None
    return standing if standing.fingerprint == asked.fingerprint else None


def _is_under_way(now: EventNow, standing: Decision | None) -> bool:
    """Whether a VM has, or will have, something to do for this event already."""
    if standing is not None and standing.kind == "approve" and standing.state == "open":
        return True
    return bool(working(now.receipts)) and now.event.state == "scheduled"


def is_left(standing: Decision, asked: Request) -> bool:
    """Whether just this has been left already."""
    return standing.kind == "leave" and standing.fingerprint == asked.fingerprint


def agrees(sighting: Sighting | None, now: EventNow) -> bool:
    """Whether a witness sees the event as it is shown."""
    return sighting is not None and sighting.facts.is_same(now.shown.facts)
