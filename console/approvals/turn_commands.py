"""The commands that ask VMs to prepare: which are to be sent now, and their rows.

Nothing here signs or sends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from console.approvals.command_sender import OutgoingCommand, with_site
from console.approvals.new_commands import write_new_command
from console.db.decisions import decision_rows, prepare_commands
from console.db.decisions.prepare_commands import COMMAND_SECONDS
from console.db.snapshot import Snapshot
from console.fleet.candidates import PULL, channel_of
from console.fleet.commands import REPLAYED, own_receipts
from console.fleet.decisions import MAX_REASON_CHARACTERS
from console.fleet.values.decision import Receipt, VmCommand
from console.fleet.values.keys import EventKey
from console.fleet.values.vm import Vm
from console.turns.facts import EventFacts, Turn, TurnFacts
from console.turns.returns import ANSWER_SECONDS

RESEND_SECONDS: Final = 10.0
"""A command that was not answered is sent again after this time."""
_MAX_SECONDS: Final = 300.0
"""The longest time between two commands to a VM that refuses them."""
_ASK_AGAIN_REASONS: Final = (
    "unknown_event",
    "expired",
    "not_yet_valid",
    "rate_limited",
    "event_changed",
)
"""The reasons for which a VM refuses a command, and may accept the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCommand:
    """A command that is to be sent now."""

    command: VmCommand
    is_new: bool
    """Whether it was never sent."""


def due_commands(
    snapshot: Snapshot,
    facts: TurnFacts,
    prepares: Sequence[tuple[EventKey, str]],
    connected: Collection[str],
) -> list[DueCommand]:
    """Return the commands that are to be sent now to the VMs in `prepares`, which has event keys
    and vmIds, over channels that this console has.
    """
    if not prepares or not facts.can_sign:
        return []
    connection = snapshot.connection
    now = snapshot.now
    before = prepare_commands.read(connection, {key.event_id for key, _ in prepares})
    newest = [commands[-1].jti for commands in before.values()]
    receipts = decision_rows.receipts_of(connection, newest)
    vms = {
        heard.vm.vm_id: heard.vm
        for heard in snapshot.vms.vms_with_ids({vm_id for _, vm_id in prepares})
    }
    found = []
    for key, vm_id in prepares:
        vm = vms.get(vm_id)
        if vm is None:
            continue
        channel = _connected_channel(vm, snapshot, connected)
        if channel is None:
            continue
        event = facts.events[key]
        turn = facts.turns[key]
        sent = before.get((key, event.fingerprint, vm_id), [])
        made = _next_command(
            sent,
            receipts,
            _new_command(event, turn, vm_id, channel, now),
            since=turn.since,
            is_preparing=facts.vms[vm_id].preparation_of_state(event) == "preparing",
        )
        if made is not None:
            found.append(made)
    return found


def _connected_channel(vm: Vm, snapshot: Snapshot, connected: Collection[str]) -> str | None:
    """Return the channel of a VM, if it has one and this console has it too."""
    channel = channel_of(vm.command_source, vm.pulled_at, snapshot.now, snapshot.listening)
    return channel if channel == PULL or channel in connected else None


def _next_command(
    sent: Sequence[VmCommand],
    receipts: Sequence[Receipt],
    new: VmCommand,
    *,
    since: float,
    is_preparing: bool,
) -> DueCommand | None:
    """Return the command that is to be sent now to a VM that has not prepared: a new one, or the
    last of those that were sent; None if one was sent lately or answered. `since`: when its turn
    began to prepare.

    After a refusal for a reason that may pass, the next one waits, twice as long each time. A VM
    that accepted a command and does not report for `ANSWER_SECONDS` that it is preparing may have
    lost it: it is asked again.
    """
    now = new.made_at
    if not sent:
        return DueCommand(command=new, is_new=True)
    last = sent[-1]
    if now < last.expires_at - COMMAND_SECONDS + RESEND_SECONDS:
        return None
    if last.made_at < since:  # it was made when the turn was in this state before
        return DueCommand(command=new, is_new=True)
    answers = [one for one in own_receipts(last, receipts) if one.content.reason != REPLAYED]
    if not answers:
        again = replace(last, channel=new.channel, expires_at=new.expires_at, sent_at=None)
        return DueCommand(command=again, is_new=False)
    answer = answers[-1].content
    age = now - last.made_at
    patience = min(RESEND_SECONDS * 2 ** (len(sent) - 1), _MAX_SECONDS)
    may_pass = answer.state in ("rejected", "failed") and answer.reason in _ASK_AGAIN_REASONS
    is_lost = answer.state in ("accepted", "confirmed") and not is_preparing
    if (may_pass and age >= patience) or (is_lost and age >= ANSWER_SECONDS):
        return DueCommand(command=new, is_new=True)
    return None


def _new_command(event: EventFacts, turn: Turn, vm_id: str, channel: str, now: float) -> VmCommand:
    return VmCommand(
        jti=str(uuid4()),
        decision_id="",
        event_id=event.event_id,
        scope=event.key.scope,
        fingerprint=event.fingerprint,
        vm_id=vm_id,
        channel=channel,
        subject=turn.actor or "",
        reason=reason_of(turn),
        made_at=now,
        expires_at=float(int(now) + COMMAND_SECONDS),
        act=decision_rows.PREPARE,
    )


def reason_of(turn: Turn) -> str:
    """Return the reason of the person, or the groups whose turn it is. The key of a group may hold
    characters from the tag of a VM: only printable ones are kept.
    """
    text = turn.person_reason or f"its turn in {', '.join(turn.groups)}"
    return "".join(each for each in text if each.isprintable())[:MAX_REASON_CHARACTERS]


def write_command(
    snapshot: Snapshot, due: DueCommand, change_number: int
) -> OutgoingCommand | None:
    """Write the row that makes other consoles wait, and before it, for a new command, the audit
    row.
    """
    if due.is_new:
        return write_new_command(snapshot, due.command, change_number, action="prepare")
    decision_rows.update_command(snapshot.connection, due.command, change_number)
    return with_site(snapshot.connection, due.command)
