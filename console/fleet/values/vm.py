"""A VM of the fleet: its row, its name, its contact and what is coming to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from console.fleet.contact import Contact
from console.fleet.values.keys import as_key, name_key, text_hash
from console.records.incoming import EventReport

Condition = Literal["clear", "scheduled", "started"]
CLEAR: Final = "clear"
DEFAULT_SITE: Final = "default"


class NameFamily(NamedTuple):
    """A place, and a name without the number at its end."""

    place: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetName:
    """The name, place and site by which the fleet knows a VM: its first report sets them, and an
    admin has to accept a change.
    """

    name: str
    subscription_id: str | None
    resource_group: str | None
    scale_set: str | None
    site: str
    resource_id: str | None

    @property
    def compared(self) -> tuple[str, ...]:
        """A value that is equal for two names that are the same: Azure writes a name in any
        case.
        """
        names = (self.name, self.subscription_id, self.resource_group, self.scale_set)
        return (*(name_key(each or "") for each in names), self.site)

    @property
    def id(self) -> str:
        """A text that is equal for two names that are the same. A client that accepts a name sends
        it back.
        """
        return text_hash("\n".join(self.compared))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """One row per VM: who it is, and its last contact."""

    vm_id: str
    name: str
    site: str = DEFAULT_SITE
    resource_id: str | None = None
    subscription_id: str | None = None
    resource_group: str | None = None
    location: str | None = None
    zone: str | None = None
    scale_set: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags that it reports. A tag of `bound_tags` replaces its own of the same name."""
    bound_tags: Mapping[str, str] = field(default_factory=dict)
    """The tags that an admin has given it."""
    replaced_tags: Mapping[str, str] = field(default_factory=dict)
    """Its own tags that tags of `bound_tags` replace: they count again once these are not given."""
    version: str | None = None
    instance_id: str | None = None
    """The run of its bridge."""
    earlier_instance_ids: tuple[str, ...] = ()
    """The runs before that one, the newest first, as far as they are known."""
    stream: str | None = None
    sequence: int = 0
    record_time: float = 0.0
    """The time of the newest record, by the VM's clock."""
    heard_at: float = 0.0
    heard_source: str = ""
    """The name of the source over which it was last heard."""
    state_at: float | None = None
    """When its state document was last read; None if none was."""
    interval: float | None = None
    """The seconds between its heartbeats."""
    stopped_at: float | None = None
    lost_at: float | None = None
    lost_instance_id: str | None = None
    retired_at: float | None = None
    retired_by: str | None = None
    record_waited: float = 0.0
    """How many seconds the newest record has waited at the VM, more than a heartbeat does."""
    command_source: str | None = None
    """The name of the source over which it takes commands."""
    status_site: str | None = None
    """The site of the MQTT topics at which it was last online. It differs from `site` if that was
    given at its enrolment, or the VM reports another one that is not accepted.
    """
    prepares: bool = False
    """Whether it has a program that prepares."""
    missing_records: int = 0
    """How many records of its streams are missing."""
    pulled_at: float | None = None
    """When it last polled the HTTPS command channel."""
    name_since: float = 0.0
    """When it began to bear its name in its place; zero if that was before this was stored."""
    reported_as: FleetName | None = None
    """The name, place and site that it reports if they differ from those it is known by; None if
    they do not differ. They have no effect until an admin accepts them.
    """
    withheld: bool = False
    """Whether another VM, heard lately, bears its name in its place. Events mean that one by the
    name.
    """
    conflict_at: float | None = None
    """Since when `reported_as` or `withheld` is set; None if neither is."""
    accepted_at: float = 0.0
    """When a person accepted its name; zero if that was never needed."""
    clock_behind: float = 0.0
    """How many seconds its clock is behind the console's, by its heartbeats."""
    change_number: int = 0
    """The number of the last transaction that changed this row, unless it changed only the time of
    contact.
    """

    @property
    def place(self) -> str:
        """The key of its subscription, resource group and scale set. Its name is unique within
        these. If they are unknown, or if its name is withheld, the VM has a place of its own.
        """
        if self.withheld or not self.subscription_id or not self.resource_group:
            parts = ["vm", self.vm_id]
        else:
            parts = [self.subscription_id, self.resource_group, self.scale_set or ""]
        return sha256("\n".join(parts).lower().encode(errors="replace")).hexdigest()

    @property
    def name_family(self) -> NameFamily | None:
        """A value that is the same for all VMs of a resource group whose names differ only in the
        number at the end. None if its name has no number, or if it belongs to a scale set, which is
        the better group.
        """
        text = name_key(self.name)
        stem = text.rstrip("0123456789")
        if self.scale_set or not stem or stem == text:
            return None
        return NameFamily(self.place, stem)

    @property
    def scope(self) -> str:
        """The key of its subscription and resource group, within which an event's id is unique.
        Empty if they are unknown.
        """
        if not self.subscription_id or not self.resource_group:
            return ""
        return as_key(f"{self.subscription_id}/{self.resource_group}".lower())

    @property
    def known_as(self) -> FleetName:
        """The name, place and site by which the fleet knows it."""
        return FleetName(
            name=self.name,
            subscription_id=self.subscription_id,
            resource_group=self.resource_group,
            scale_set=self.scale_set,
            site=self.site,
            resource_id=self.resource_id,
        )

    @property
    def conflict_id(self) -> str | None:
        """The id that a person sends back to accept what it reports; None without a conflict."""
        if self.conflict_at is None:
            return None
        return (self.reported_as or self.known_as).id

    def reported_at(self, time: float, received_at: float) -> float:
        """Convert a time that the VM reports to the console's clock; it is never later than
        `received_at`.
        """
        return min(time + self.clock_behind, received_at)

    def is_named_by(self, report: EventReport) -> bool:
        """Check whether an event names this VM, by the name that it bears and not by one that it
        only reports.
        """
        if self.withheld:
            return False
        own = name_key(self.name)
        names = report.event.resources
        return report.affects_this_vm and any(name_key(name) == own for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardVm:
    """A VM and its contact at one moment."""

    vm: Vm
    contact: Contact


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is coming to a VM: its condition, and the open events that name it."""

    condition: Condition = CLEAR
    events: tuple[str, ...] = ()
