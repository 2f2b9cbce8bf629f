"""What VMs have reported of events and of their preparations: the newest of each VM."""

from __future__ import annotations

from dataclasses import dataclass

from console.fleet.values.keys import EventKey, name_key, text_hash
from console.records.incoming import EventReport, PreparationContent
from wire.event import NOT_FINGERPRINTED


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestReport:
    """The newest report of one reporter about one event."""

    event_id: str
    vm_id: str
    record_id: str
    stream: str
    sequence: int
    """The sequence of the record; zero if the report is from a state document."""
    time: float
    """The time of the report, by the console's clock, as `Vm.reported_at` converts it: times of
    several VMs are compared.
    """
    first_seen_at: float
    """The time of the reporter's first record about the event."""
    report: EventReport
    scope: str = ""
    """The scope of the reporter, within which the event's id is unique."""
    is_own: bool = False
    """Whether the event names the reporter, by the name that the reporter bears."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)

    @property
    def content_hash(self) -> str:
        """A hash that is equal for two reporters that report the same."""
        names = "\n".join(sorted(self.report.event.resources))
        return text_hash(f"{self.report.fingerprint}\n{names}")

    @property
    def wording_hash(self) -> str | None:
        """A hash that is equal for two reporters that report the same in what the fingerprint does
        not cover. None for a state document, which has none of it.
        """
        if not self.sequence:
            return None
        fields = self.report.event.to_wire()
        values = (self.report.impact, *(fields.get(name) for name in NOT_FINGERPRINTED))
        return text_hash("\n".join(map(str, values)))

    @property
    def names_hash(self) -> str:
        """A hash that is equal for two reporters that name the same VMs."""
        return text_hash("\n".join(sorted(map(name_key, self.report.event.resources))))

    @property
    def is_weak(self) -> bool:
        """Whether the event is shown by this report only until another VM reports it. So it is if
        the report cannot be proven, or if the event goes on without this reporter.
        """
        return self.report.goes_on or not self.report.is_proven


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPreparation:
    """The latest report of a VM about its preparation for an event."""

    vm_id: str
    scope: str
    """The scope of the VM."""
    content: PreparationContent
    stream: str
    sequence: int
    """The sequence of the record; zero if the report is from a state document."""
    time: float
    """The time of the report, by the console's clock, as `Vm.reported_at` converts it."""
    begun_sequence: int = 0
    """The sequence of the record by which the preparation began, also once the VM has recovered;
    zero if it is not known.
    """
