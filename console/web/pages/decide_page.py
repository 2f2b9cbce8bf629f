"""`/decide`: the events that wait for a decision, and the page that confirms the ticked ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from console.access.people import Person
from console.web.app_state import AppState
from console.web.pages import decision_block, event_rows, form_fields
from console.web.pages.event_rows import EventListRow
from console.web.pages.list_address import MAX_CHARACTERS
from console.web.pages.sibling_vms import Sibling, siblings

MAX_EVENTS: Final = 20
"""The most events that one form decides: as many as a person can read before approving."""
PARAMETERS: Final = ("site", "type", "q")
"""The parameters of the list's address."""
TICKED: Final = "event"
"""A parameter of the confirmation's address: the id of each ticked event."""
CONFIRM_PARAMETERS: Final = (*PARAMETERS, TICKED)
"""The parameters of the confirmation's address."""
_SHOWN: Final = 200
"""The most rows of the list; the number above it counts all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The parameters of the page's address; an empty text filters nothing."""

    site: str = ""
    type: str = ""
    q: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """Return the filter of a query string."""
        return cls(**{name: query.get(name, "").strip()[:MAX_CHARACTERS] for name in PARAMETERS})

    @property
    def query(self) -> str:
        """The filter as a query string with its question mark; empty if it filters nothing."""
        given = {name: value for name in PARAMETERS if (value := getattr(self, name))}
        return f"?{urlencode(given)}" if given else ""

    def matches(self, row: EventListRow) -> bool:
        """Check whether the site and type of an event pass the filter; the search text is not
        checked here.
        """
        if self.site and self.site not in row.sites:
            return False
        return not self.type or self.type.lower() == (row.event.event_type or "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class TickedEvent:
    """A ticked event as the confirmation page shows it."""

    row: EventListRow
    seen: str
    """What the form sends back of it."""
    four_eyes: bool
    """Whether one person alone cannot approve it."""
    siblings: Sequence[Sibling]


class EventsToDecide:
    """The events that wait for a decision, ordered by the time that is left."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    @property
    def change_pattern(self) -> str | None:
        """The pattern of the change number that an approval needs; None if it needs none."""
        return self._state.settings.approval.change_pattern

    def template_values(
        self, query: Mapping[str, str], person: Person, ticked: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the values of the list, and of the page that confirms the ticked events. Raises
        `DatabaseFailedError`.
        """
        wanted = Filter.of(query)
        wanted_ids = {each.lower() for each in ticked}
        with self._state.snapshots.open() as snapshot:
            rows = event_rows.open_rows(snapshot)
            waiting = [row for row in rows if row.event.decision.state == "due"]
            searched = event_rows.found_among(snapshot, waiting, wanted.q)
            chosen = [row for row in waiting if row.event.event_id.lower() in wanted_ids]
            events = [row.event for row in chosen]
            siblings_of = siblings(snapshot, events, self._state.grouping, person)
        found = [row for row in searched if wanted.matches(row)]
        return {
            "filter": wanted,
            "sites": sorted({site for row in waiting for site in row.sites}),
            "types": sorted({row.event.event_type for row in waiting if row.event.event_type}),
            "rows": found[:_SHOWN],
            "count": len(found),
            "waiting": len(waiting),
            "due": sum(not _is_note(row) for row in found),
            "all_due": sum(not _is_note(row) for row in waiting),
            "limit": MAX_EVENTS,
            "ticked": ticked,
            "gone": len(wanted_ids) - len(chosen),
            "chosen": [
                self._ticked_event(row, its) for row, its in zip(chosen, siblings_of, strict=True)
            ],
            "vms": sum(len(event.names) for event in events),
            "may": "approver" in person.roles,
            "change_pattern": self.change_pattern,
            "has_key": self._state.decisions.signer is not None,
        }

    def _ticked_event(self, row: EventListRow, sibling_vms: Sequence[Sibling]) -> TickedEvent:
        return TickedEvent(
            row=row,
            seen=form_fields.written(row.event),
            four_eyes=decision_block.needs_second(row.event, self._state.settings),
            siblings=sibling_vms,
        )


def _is_note(row: EventListRow) -> bool:
    """Check whether the event is an eviction or a deletion, which needs no decision."""
    return row.section == "note"
