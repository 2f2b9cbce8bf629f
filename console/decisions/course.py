"""What is to be done next for a decision, from its rows, the receipts and the time: values in, a
step out.

It never lets two VMs work on one event: the next witness is asked only once the token of the last
has expired, the event is Scheduled with the same fingerprint, and no VM has reported anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.fleet.commands import REPLAYED, Stand, foreign, own_receipts, stand, working
from console.fleet.values import Command, Decision, Receipt
from console.fleet.witnesses import PULL, Witness, first

TAKEOVER_SECONDS: Final = 10.0
"""Without a receipt for so long, the next witness is asked."""
SHORT_SECONDS: Final = 8
"""Life of a token while another witness could be asked next: it must have ended by then."""
LONG_SECONDS: Final = 60
"""Life of a token if no other witness could be asked."""
GRACE_SECONDS: Final = 10.0
"""How long a receipt may be on its way once the token has expired."""
SETTLE_SECONDS: Final = 3.0
"""How long a source that is connected again may take to bring what has waited there."""
END_SECONDS: Final = 900.0
"""After notBefore: how long a VM that has accepted a command may take to report its end."""
_MOVED: Final = ("already_started", "unknown_event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The event as it is now."""

    state: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a step follows from; times are seconds since 1970."""

    decision: Decision
    commands: Sequence[Command]
    """Of this decision, the oldest first."""
    receipts: Sequence[Receipt]
    """About the event, of VMs that it names, the oldest first."""
    seen: Seen | None
    """None: the event is not known any more."""
    witnesses: Sequence[Witness]
    """Those that can be asked now, the best first."""
    connected: Mapping[str, float | None]
    """For each source, since when it is connected; None while it is not."""
    now: float
    up_since: float
    """Since when this console runs."""

    @property
    def deadline(self) -> float:
        """When it ends, whatever is still to come."""
        return max(self.decision.at, self.decision.not_before or 0) + END_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Sign this command and send it, good until then."""

    command: Command
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask this VM too."""

    witness: Witness
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


def next_step(situation: Situation) -> Step:
    """The next step of a decision that is not over."""
    decision, seen = situation.decision, situation.seen
    if decision.kind == "approve" and decision.state == "open":
        return _of_commands(situation)
    if seen is not None and seen.state == "scheduled":
        same = seen.fingerprint == decision.fingerprint
        return Wait() if same else End(outcome="overtaken", reason="changed")
    if decision.kind == "leave":
        by = _others(situation, also=("confirmed",))
        return End(outcome="overtaken", reason=by) if by else End(outcome="left")
    return End(outcome="overtaken", reason="started" if seen is not None else "ended")


def _of_commands(situation: Situation) -> Step:
    """A decision whose command is on its way, or answered."""
    stands = [(each, stand(each, situation.receipts)) for each in situation.commands]
    at = {how.state: how.at for _, how in stands}
    if "confirmed" in at:
        return End(outcome="confirmed")
    if "posted" in at and (situation.seen is None or situation.seen.state != "scheduled"):
        # All that the VM can report now is that the event has begun; a broker may have lost that.
        return _or_end(situation, at["posted"] + GRACE_SECONDS, End(outcome="confirmed"))
    if at.keys() & {"accepted", "posted"}:
        return _or_end(situation, situation.deadline, End(outcome="unanswered", reason="no_end"))
    answered = [each for each in stands if own_receipts(each[0], situation.receipts)]
    open_until = [
        each.expires_at + GRACE_SECONDS
        for each, how in stands
        if each.sent_at is not None and _may_still_answer(how)
    ]
    if answered:
        return _or_end(situation, max(open_until, default=0.0), _verdict(situation, answered))
    return _of_silence(situation, max(open_until, default=0.0))


def _of_silence(situation: Situation, open_until: float) -> Step:
    """No VM has reported anything about a command of this decision."""
    moved = _moved(situation)
    if moved is not None:
        return _or_end(situation, open_until, moved)
    now, commands = situation.now, situation.commands
    last = commands[-1] if commands else None
    following = first(situation.witnesses, {each.vm_id for each in commands})
    if last is not None and last.sent_at is None and now < situation.deadline:
        return _unsent(situation, last, following)
    due = 0.0 if last is None else max(last.expires_at, (last.sent_at or 0) + TAKEOVER_SECONDS)
    if now < due:
        return Wait(until=due)
    if now < situation.deadline and any(_is_deaf(situation, each) for each in commands):
        return Wait(until=now + 1)
    if following is not None:
        return _ask(situation, following)
    return _or_end(situation, open_until, End(outcome="unanswered", reason="no_answer"))


def _unsent(situation: Situation, command: Command, following: Witness | None) -> Step:
    """A command that, as far as is known, is not on its way: its jti is good for a new token."""
    decision, now = situation.decision, situation.now
    if command.channel == PULL:
        return _unfetched(situation, command, following)
    if decision.claimed_until is not None and decision.claimed_until > now:
        return Wait(until=decision.claimed_until)
    return Send(command=command, expires_at=_renewed(situation, command, following))


def _unfetched(situation: Situation, command: Command, following: Witness | None) -> Step:
    """The VM has not asked for it; it had no chance to while this console did not run."""
    if command.expires_at > situation.now:
        return Wait(until=command.expires_at)
    if situation.up_since > command.expires_at - SHORT_SECONDS:
        return Send(command=command, expires_at=_renewed(situation, command, following))
    if following is not None:
        return _ask(situation, following)
    return End(outcome="unanswered", reason="no_answer")


def _renewed(situation: Situation, command: Command, following: Witness | None) -> float:
    """Until when an unsent command is good; it may have been sent without a note of that, so that a
    life that has not ended is kept.
    """
    if command.expires_at > situation.now + 1:
        return command.expires_at
    return expiry(situation.now, situation.decision.not_before, others=following is not None)


def _ask(situation: Situation, witness: Witness) -> Ask:
    tried = {witness.vm_id, *(each.vm_id for each in situation.commands)}
    others = first(situation.witnesses, tried) is not None
    until = expiry(situation.now, situation.decision.not_before, others=others)
    return Ask(witness=witness, expires_at=until)


def _moved(situation: Situation) -> End | None:
    """The end of a decision whose event is not what was approved any more."""
    seen = situation.seen
    by = _others(situation)
    if by is not None:
        return End(outcome="overtaken", reason=by)
    if seen is None or seen.state != "scheduled":
        return End(outcome="overtaken", reason="ended" if seen is None else seen.state)
    if seen.fingerprint != situation.decision.fingerprint:
        return End(outcome="overtaken", reason="changed")
    return None


def _is_deaf(situation: Situation, command: Command) -> bool:
    """Whether the receipt of a command may be waiting where the console cannot hear it."""
    if command.channel == PULL:
        return False
    since = situation.connected.get(command.channel)
    return since is None or situation.now - since < SETTLE_SECONDS


def _others(situation: Situation, also: Sequence[str] = ()) -> str | None:
    """Who else had the event approved, as a VM reports it: a rule, or a person on the VM."""
    own = {each.jti for each in situation.commands}
    others = [
        each
        for each in situation.receipts
        if each.facts.jti not in own and not foreign(each, situation.commands)
    ]
    begun = [*working(others), *(each for each in others if each.facts.state in also)]
    return begun[0].facts.actor if begun else None


def _verdict(situation: Situation, answered: Iterable[tuple[Command, Stand]]) -> End:
    """The end that the VMs' answers make: the failure of one that tried says most."""
    order = ("failed", "rejected")
    said = min((each for _, each in answered), key=lambda each: order.index(each.state))
    by = _others(situation, also=("confirmed",))
    if by is not None and said.reason in _MOVED:
        return End(outcome="overtaken", reason=by)
    return End(outcome=said.state, reason=said.reason)


def _may_still_answer(how: Stand) -> bool:
    """Whether more may come: nothing has yet, or only that a copy of the command was refused."""
    return how.state == "sent" or (how.state == "rejected" and how.reason == REPLAYED)


def _or_end(situation: Situation, until: float, end: End) -> Step:
    return Wait(until=until) if situation.now < until else end
