"""What was decided about an event, the commands that carry it out, their receipts, and the person
who works on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from console.fleet.values.keys import EventKey
from console.records.incoming import ReceiptContent

LEASE_SECONDS: Final = 5.0
"""For how long other consoles leave the sending of a command to the one that has claimed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One state of one command, as the VM reported it."""

    record_id: str
    vm_id: str
    at: float
    """When the receipt came in. The console measures its own waits from this time."""
    time: float
    """When the VM reached this state, by the console's clock, as `Vm.reported_at` converts it."""
    content: ReceiptContent
    scope: str = ""
    """The scope of the VM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person or a program decided about an event, and how that ended."""

    id: str
    event_id: str
    fingerprint: str
    """The fingerprint of the event as the person saw it."""
    kind: str
    """`approve` or `leave`."""
    state: str
    """`second` (waits for the second person), `open`, or `over`."""
    actor: str
    reason: str
    at: float
    second_actor: str | None = None
    not_before: float | None = None
    outcome: str | None = None
    """`confirmed`, `failed`, `rejected`, `unanswered`, `left` or `overtaken`."""
    outcome_reason: str | None = None
    """The reason of the outcome in one word, from a receipt or from the console."""
    over_at: float | None = None
    claimed_by: str | None = None
    """The run of a console that sends a command of this decision now."""
    claimed_until: float | None = None
    scope: str = ""
    """The scope of the event."""

    @property
    def key(self) -> EventKey:
        """The event's id and scope."""
        return EventKey(self.event_id, self.scope)

    @property
    def actors(self) -> str:
        """The names of the persons who decided."""
        return self.actor if self.second_actor is None else f"{self.actor}, {self.second_actor}"

    def with_claim(self, run_id: str, now: float) -> Decision:
        """Return the decision as claimed by a run of a console, which sends its command now."""
        return replace(self, claimed_by=run_id, claimed_until=now + LEASE_SECONDS)

    def with_outcome(self, outcome: str, reason: str | None, at: float) -> Decision:
        """Return the decision with its end."""
        return replace(
            self,
            state="over",
            outcome=outcome,
            outcome_reason=reason,
            over_at=at,
            claimed_by=None,
            claimed_until=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VmCommand:
    """What one VM was asked to do; its token is signed when it is sent."""

    jti: str
    decision_id: str
    event_id: str
    fingerprint: str
    vm_id: str
    channel: str
    """The name of the source over which it is sent, or of the HTTPS channel."""
    subject: str
    reason: str
    made_at: float
    expires_at: float
    """When its token expires, in whole seconds. It does not change once the command is sent."""
    sent_at: float | None = None
    """When the broker accepted it, or the VM fetched it."""
    unanswered_at: float | None = None
    """When the console stopped waiting for its receipt."""
    scope: str = ""
    """The scope of the event."""
    act: str = "approve"
    """`approve` for a decision, or `prepare` for the turn of an event; a `prepare` belongs to no
    decision.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionHistory:
    """The newest decision on an event, and every command about the event, the oldest first."""

    decision: Decision | None = None
    commands: tuple[VmCommand, ...] = ()


UNDECIDED = DecisionHistory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A person who works on an event or a VM, until a time."""

    actor: str
    until: float
