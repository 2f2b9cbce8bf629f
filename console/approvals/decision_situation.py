"""The facts from which the next step of a decision follows, and the kinds of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.fleet.candidates import PULL, Candidate, next_candidate
from console.fleet.commands import (
    REPLAYED,
    CommandStatus,
    command_status,
    is_from_other_vm,
    own_receipts,
    under_way,
)
from console.fleet.values.decision import Decision, Receipt, VmCommand

TAKEOVER_SECONDS: Final = 10.0
"""The next reporter is asked after this time without a receipt."""
SHORT_SECONDS: Final = 8
"""The lifetime of a token while another reporter could be asked next: it must end before that."""
LONG_SECONDS: Final = 60
"""The lifetime of a token if no other reporter could be asked, in seconds."""
GRACE_SECONDS: Final = 10.0
"""How long after the expiry of a token a receipt may still arrive."""
SETTLE_SECONDS: Final = 3.0
"""How long a source may take, after it is connected again, to deliver the messages that waited
there.
"""
END_SECONDS: Final = 900.0
"""How long after notBefore a VM that has accepted a command may take to report the event's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEvent:
    """The event as the database shows it now."""

    state: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSituation:
    """Everything from which a step follows; times are seconds since 1970."""

    decision: Decision
    commands: Sequence[VmCommand]
    """The commands of this decision, the oldest first."""
    receipts: Sequence[Receipt]
    """The receipts about the event from the VMs that it names, the oldest first."""
    event: ShownEvent | None
    """None: the event is not known any more."""
    candidates: Sequence[Candidate]
    """The VMs that can be asked now, the best first."""
    connected: Mapping[str, float | None]
    """For each source of this console, since when it is connected; None if it is not."""
    now: float
    up_since: float
    """When this console was started."""

    @property
    def deadline(self) -> float:
        """When the decision ends at the latest."""
        return max(self.decision.at, self.decision.not_before or 0) + END_SECONDS

    @property
    def last(self) -> VmCommand | None:
        """The newest command."""
        return self.commands[-1] if self.commands else None

    @property
    def next_candidate(self) -> Candidate | None:
        """The best reporter that was not asked yet, which is the next to be asked."""
        return next_candidate(self.candidates, {each.vm_id for each in self.commands})

    @property
    def progress(self) -> list[tuple[VmCommand, CommandStatus]]:
        """The status of each command."""
        return [(each, command_status(each, self.receipts)) for each in self.commands]

    def time_of(self, state: str) -> float | None:
        """Return when a VM reported that state of a command, or None."""
        return next((how.at for _, how in self.progress if how.state == state), None)

    @property
    def answers(self) -> list[CommandStatus]:
        """The statuses of the commands for which their VMs sent a receipt."""
        return [how for each, how in self.progress if own_receipts(each, self.receipts)]

    @property
    def answers_until(self) -> float:
        """The time until which a receipt may arrive for a command that has no final answer."""
        return max(
            (
                each.expires_at + GRACE_SECONDS
                for each, how in self.progress
                if each.sent_at is not None and _may_still_answer(how)
            ),
            default=0.0,
        )

    @property
    def asked_next_at(self) -> float:
        """When the next reporter may be asked: no token is valid any more, and the last VM had its
        time.
        """
        if self.last is None:
            return 0.0
        return max(self.last.expires_at, (self.last.sent_at or 0) + TAKEOVER_SECONDS)

    def approved_by(self, *, or_confirmed: bool = False) -> str | None:
        """Return who approved the event besides this decision, a rule or a person on a VM, as a VM
        reports it; None if nobody did.
        """
        own = {each.jti for each in self.commands}
        others = [
            each
            for each in self.receipts
            if each.content.jti not in own and not is_from_other_vm(each, self.commands)
        ]
        begun = under_way(others)
        if or_confirmed:
            begun += [each for each in others if each.content.state == "confirmed"]
        return begun[0].content.actor if begun else None

    def cannot_hear(self, command: VmCommand) -> bool:
        """Check whether a receipt may be waiting at a source that is not connected, or was not
        until just now.
        """
        if command.channel == PULL:
            return False
        since = self.connected.get(command.channel)
        return since is None or self.now - since < SETTLE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCommand:
    """Sign this command and send it, valid until `expires_at`."""

    command: VmCommand
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskVm:
    """Ask this further VM."""

    candidate: Candidate
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDecision:
    """The end of the decision."""

    outcome: str
    reason: str | None = None

    def __str__(self) -> str:
        return f"It is over: {self.outcome}{f' ({self.reason})' if self.reason else ''}."


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForChange:
    """Wait for a change, or until a time; None: only for a change."""

    until: float | None = None

    def __str__(self) -> str:
        return "Wait."


DecisionStep = SendCommand | AskVm | EndDecision | WaitForChange


def expiry(now: float, not_before: float | None, *, others: bool) -> float:
    """Return when a token that is signed now expires: at most `SHORT_SECONDS` after notBefore, but
    never sooner than `SHORT_SECONDS` from now.
    """
    life = SHORT_SECONDS if others else LONG_SECONDS
    if not_before is not None:
        life = max(SHORT_SECONDS, min(life, int(not_before - now) + SHORT_SECONDS))
    return float(int(now) + life)


def _may_still_answer(how: CommandStatus) -> bool:
    """Check whether a further receipt may come: there is none yet, or only the refusal of
    a copy.
    """
    return how.state == "sent" or (how.state == "rejected" and how.reason == REPLAYED)
