"""The statuses of commands, from the receipts of their VMs. Values in, values out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from console.fleet.model import Model, Moment
from console.fleet.values.decision import Decision, Receipt, VmCommand
from console.fleet.values.event import NamedVm

CommandState = Literal[
    "sent", "accepted", "posted", "confirmed", "failed", "rejected", "unanswered"
]
UNDER_WAY_STATES: Final = ("accepted", "posted")
"""States after which the VM continues by itself, even after a restart."""
_RANK: Final = {"rejected": 1, "accepted": 2, "posted": 3, "failed": 4, "confirmed": 5}
REPLAYED: Final = "replayed"
LAPSE_SECONDS: Final = 900.0
"""For how long an acceptance counts after its command has expired: the VM acts on it no more, and
Azure starts what was approved by then.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStatus:
    """The status of a command; `at` in seconds since 1970."""

    state: CommandState
    """`sent`, `unanswered`, or the state of the receipt that counts."""
    reason: str | None
    at: float


def own_receipts(command: VmCommand, receipts: Iterable[Receipt]) -> list[Receipt]:
    """Return the receipts from the command's own VM, the oldest first; those of other VMs do not
    count.
    """
    return [
        each
        for each in receipts
        if each.content.jti == command.jti and each.vm_id == command.vm_id and _rank(each)
    ]


def is_from_other_vm(receipt: Receipt, commands: Iterable[VmCommand]) -> bool:
    """Check whether a receipt comes from another VM than the one to which its command was sent."""
    return any(each.jti == receipt.content.jti and each.vm_id != receipt.vm_id for each in commands)


def receipts_that_count(
    receipts: Iterable[Receipt],
    named: Mapping[str, NamedVm],
    commands: Iterable[VmCommand],
    *,
    scheduled_at: float | None,
) -> list[Receipt]:
    """Return the receipts that count for an event. Those of VMs that were asked count; an
    acceptance for some time only while the event is Scheduled, that is at `scheduled_at`. Those of
    another VM that the event names count unless a heard VM that it names still reports it as
    pending.
    """
    commands = list(commands)
    lapsed = {
        each.jti
        for each in commands
        if scheduled_at is not None and each.expires_at + LAPSE_SECONDS < scheduled_at
    }
    bearers = {each.vm_id for each in named.values()}
    asked = {(each.jti, each.vm_id) for each in commands}
    waiting = {
        each.vm_id
        for each in named.values()
        if each.contact == "heard" and each.content_hash is not None and not each.is_over
    }
    return [
        each
        for each in receipts
        if ((each.content.jti, each.vm_id) in asked and not _has_lapsed(each, lapsed))
        or (each.vm_id in bearers and waiting <= {each.vm_id})
    ]


def _has_lapsed(receipt: Receipt, lapsed: Container[str]) -> bool:
    return receipt.content.state == "accepted" and receipt.content.jti in lapsed


def command_status(command: VmCommand, receipts: Sequence[Receipt]) -> CommandStatus:
    """Return the status of a command. The rejection of a second copy does not undo an acceptance:
    its reason is `replayed`, or another one if the copy was late.
    """
    own = own_receipts(command, receipts)
    if not own:
        if command.unanswered_at is not None:
            return CommandStatus(state="unanswered", reason=None, at=command.unanswered_at)
        return CommandStatus(state="sent", reason=None, at=command.sent_at or command.made_at)
    best = max(own, key=lambda each: (_rank(each), each.content.reason != REPLAYED, -each.at))
    return CommandStatus(state=_state_of(best), reason=best.content.reason, at=best.at)


def under_way(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Return, for each approval that a VM has begun and not ended, its newest receipt."""
    best: dict[tuple[str, str], Receipt] = {}
    for each in receipts:
        key = (each.vm_id, each.content.jti)
        if key not in best or _rank(each) >= _rank(best[key]):
            best[key] = each
    return [each for each in best.values() if each.content.state in UNDER_WAY_STATES]


class CommandStep(Model):
    """A state that a command has had."""

    state: CommandState
    at: Moment | None
    reason: str | None


class CommandItem(Model):
    """A command, with the states that it has had."""

    jti: str
    event_id: str
    vm_id: str
    state: CommandState
    reason: str | None
    history: list[CommandStep]


def command_item(
    command: VmCommand, receipts: Sequence[Receipt], decision: Decision | None = None
) -> CommandItem:
    """Return the command as `/api/v1/commands/{jti}` shows it. `decision` is the command's: it may
    be confirmed although the receipt was lost.
    """
    now = command_status(command, receipts)
    sent_at = command.sent_at or command.made_at
    history = [CommandStep(state="sent", at=sent_at, reason=None)]
    history += [
        _reported_step(each)
        for each in own_receipts(command, receipts)
        if each.content.state != "rejected" or now.state == "rejected"
    ]
    unreported = now if now.state == "unanswered" else None
    if now.state == "posted" and decision is not None and decision.outcome == "confirmed":
        now = unreported = CommandStatus(
            state="confirmed", reason=None, at=decision.over_at or now.at
        )
    if unreported is not None:
        history.append(CommandStep(state=now.state, at=now.at, reason=None))
    return CommandItem(
        jti=command.jti,
        event_id=command.event_id,
        vm_id=command.vm_id,
        state=now.state,
        reason=now.reason,
        history=history,
    )


def _reported_step(receipt: Receipt) -> CommandStep:
    content = receipt.content
    return CommandStep(state=_state_of(receipt), at=receipt.time, reason=content.reason)


def _state_of(receipt: Receipt) -> CommandState:
    """Return the state of one of a command's own receipts, whose state is known."""
    return cast("CommandState", receipt.content.state)


def _rank(receipt: Receipt) -> int:
    return _RANK.get(receipt.content.state, 0)
