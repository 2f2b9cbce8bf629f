"""The facts from which the next step of a decision follows, and the steps there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.fleet.candidates import PULL, Candidate, first
from console.fleet.commands import (
    REPLAYED,
    CommandStatus,
    command_status,
    foreign,
    own_receipts,
    working,
)
from console.fleet.values import Command, Decision, Receipt

TAKEOVER_SECONDS: Final = 10.0
"""Without a receipt for so long, the next reporter is asked."""
SHORT_SECONDS: Final = 8
"""Life of a token while another reporter could be asked next: it must have ended by then."""
LONG_SECONDS: Final = 60
"""Life of a token if no other reporter could be asked."""
GRACE_SECONDS: Final = 10.0
"""Seconds that a receipt may be on its way once the token has expired."""
SETTLE_SECONDS: Final = 3.0
"""Seconds that a source may take, once connected again, to bring what has waited there."""
END_SECONDS: Final = 900.0
"""After notBefore: how long a VM that has accepted a command may take to report its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The event as it is now."""

    state: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSituation:
    """All that a step follows from; times are seconds since 1970."""

    decision: Decision
    commands: Sequence[Command]
    """Of this decision, the oldest first."""
    receipts: Sequence[Receipt]
    """About the event, of VMs that it names, the oldest first."""
    seen: Seen | None
    """None: the event is not known any more."""
    candidates: Sequence[Candidate]
    """Those that can be asked now, the best first."""
    connected: Mapping[str, float | None]
    """For each source of this console, since when it is connected; None while it is not."""
    now: float
    up_since: float
    """Since when this console runs."""

    @property
    def deadline(self) -> float:
        """When it ends, whatever is still to come."""
        return max(self.decision.at, self.decision.not_before or 0) + END_SECONDS

    @property
    def last(self) -> Command | None:
        """The newest command."""
        return self.commands[-1] if self.commands else None

    @property
    def following(self) -> Candidate | None:
        """The best reporter that was not asked yet."""
        return first(self.candidates, {each.vm_id for each in self.commands})

    @property
    def progress(self) -> list[tuple[Command, CommandStatus]]:
        """How far each command is."""
        return [(each, command_status(each, self.receipts)) for each in self.commands]

    def reached(self, state: str) -> float | None:
        """When a VM reported that state of a command; None if none has."""
        return next((how.at for _, how in self.progress if how.state == state), None)

    @property
    def answered(self) -> list[CommandStatus]:
        """How far the commands are of which their VMs have reported anything."""
        return [how for each, how in self.progress if own_receipts(each, self.receipts)]

    @property
    def answers_until(self) -> float:
        """Until when a receipt may come of a command that was not answered for good."""
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
        """When the next reporter may be asked: no token is good any more, and a VM had its time."""
        if self.last is None:
            return 0.0
        return max(self.last.expires_at, (self.last.sent_at or 0) + TAKEOVER_SECONDS)

    def approved_by(self, *, or_confirmed: bool = False) -> str | None:
        """Who else had the event approved, as a VM reports it: a rule, or a person on the VM."""
        own = {each.jti for each in self.commands}
        others = [
            each
            for each in self.receipts
            if each.facts.jti not in own and not foreign(each, self.commands)
        ]
        begun = working(others)
        if or_confirmed:
            begun += [each for each in others if each.facts.state == "confirmed"]
        return begun[0].facts.actor if begun else None

    def cannot_hear(self, command: Command) -> bool:
        """Whether a receipt may wait where the console is not connected, or has just been again."""
        if command.channel == PULL:
            return False
        since = self.connected.get(command.channel)
        return since is None or self.now - since < SETTLE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Sign this command and send it, good until then."""

    command: Command
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask this VM too."""

    candidate: Candidate
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The decision is over."""

    outcome: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing, until something comes in, or until then; None: until something comes in."""

    until: float | None = None


Step = Send | Ask | End | Wait


def expiry(now: float, not_before: float | None, *, others: bool) -> float:
    """When a token that is signed now expires: soon, and never long after notBefore."""
    life = SHORT_SECONDS if others else LONG_SECONDS
    if not_before is not None:
        life = max(SHORT_SECONDS, min(life, int(not_before - now) + SHORT_SECONDS))
    return float(int(now) + life)


def _may_still_answer(how: CommandStatus) -> bool:
    """Whether more may come: nothing has yet, or only that a copy of the command was refused."""
    return how.state == "sent" or (how.state == "rejected" and how.reason == REPLAYED)
