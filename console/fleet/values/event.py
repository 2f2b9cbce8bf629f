"""An event of the fleet: its row, the VMs that it names, and everything that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from console.fleet.contact import Contact
from console.fleet.values.decision import Assignment, DecisionHistory, Receipt
from console.fleet.values.keys import EventKey
from console.fleet.values.report import LatestReport
from console.fleet.values.turn import EventTurn
from console.records.incoming import EventState

OPEN: Final = ("scheduled", "started")
"""The states of an event that is not over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """The row of an event: which reporter it is shown by, and whether it is over."""

    event_id: str
    scope: str = ""
    """The scope of the VMs that report it."""
    state: EventState
    """From the report that is shown."""
    shown_by: str
    """The vmId of the VM whose report is shown, as `reporter_choice` chooses it."""
    shown_at: float
    first_seen_at: float
    event_type: str | None = None
    not_before: float | None = None
    is_news: bool = False
    """Whether the event is only information: no decision is due, and no VM's condition changes."""
    sites: tuple[str, ...] = ()
    search_text: str = ""
    """The text that `q` searches: event id and resource names, in lower case."""
    status: str = ""
    """Azure's status, from the report that is shown. Once the event is over, how it ended."""
    started_at: float | None = None
    """When a VM first saw the event started; None before that."""
    notice: float | None = None
    """The seconds from the moment at which a VM first saw the event to its notBefore: the longest
    of all VMs.
    """
    downtime: float | None = None
    """The seconds for which a VM was away: the longest of all VMs."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedVm:
    """A VM that an event names."""

    name_key: str
    """The name in the form in which names are compared."""
    vm_id: str
    contact: Contact
    heard_at: float
    command_source: str | None
    pulled_at: float | None
    content_hash: str | None
    """The hash of its own report of the event; None if it has not reported it."""
    is_over: bool
    """Whether it reports that the event is over."""
    name_since: float
    """When it began to bear its name in its place."""
    site: str
    prepares: bool = False
    gave_up_on: str | None = None
    """The fingerprint of the state of the event for which its program gave up, if it did."""
    is_grouped: bool = False
    """Whether the VM belongs to a group of this console."""


class DisputedReporter(NamedTuple):
    """A reporter that is itself in conflict."""

    vm_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvent:
    """Everything that the rows have of an event at one moment."""

    event: FleetEvent
    shown: LatestReport
    """The report by which the event is shown."""
    seen_by: int
    """How many VMs have reported the event."""
    reports_differ: bool
    """Whether the reports of these VMs differ."""
    named: Mapping[str, NamedVm]
    """The VMs that the event names, by the key of its name."""
    receipts: Sequence[Receipt]
    """The receipts that count, the oldest first. They are from VMs that the event names by their
    own reports.
    """
    decided: DecisionHistory
    turn: EventTurn | None = None
    """The turn of the event. None if no group has its VMs, or if nothing has been decided about
    turns since it came in.
    """
    other_scopes: tuple[str, ...] = ()
    """The other scopes that have an event with this id: a conflict."""
    disputed: tuple[DisputedReporter, ...] = ()
    """The reporters that are themselves in conflict."""
    assigned: Assignment | None = None
    has_latest_groups: bool = True
    """Whether the console that was started last has the same groups as the one that reads this."""
