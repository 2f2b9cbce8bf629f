"""What an approval is made from, and the receipt of each of its steps; values in, values out."""

from __future__ import annotations

from datetime import datetime

from bridge.approval.verification import SignedCommand
from bridge.events.tracked import TrackedEvent
from bridge.store.approvals import Approval
from wire.observer import Observer
from wire.receipt import ReceiptData
from wire.record import APPROVAL, RecordDraft, draft


def approval_of(
    tracked: TrackedEvent, *, cause: str, jti: str, actor: str, person_reason: str | None = None
) -> Approval:
    """Return an approval of an event as it is now, for a cause that is not a token."""
    return Approval(
        cause=cause,
        jti=jti,
        event_id=tracked.event.event_id,
        fingerprint=tracked.fingerprint,
        revision=tracked.revision,
        actor=actor,
        issuer=None,
        resources=tracked.event.resources,
        person_reason=person_reason,
    )


def cause_of(command: SignedCommand) -> str:
    """Return the cause of a command's approval: the same on every channel and after every
    restart.
    """
    return f"command\n{command.issuer}\n{command.jti}"


def approval_of_command(command: SignedCommand, tracked: TrackedEvent | None) -> Approval:
    """Return the approval that a command asks for, with its event as far as that is known."""
    return Approval(
        cause=cause_of(command),
        jti=command.jti,
        event_id=tracked.event.event_id if tracked else command.event_id,
        fingerprint=command.fingerprint,
        revision=tracked.revision if tracked else None,
        actor=command.subject,
        issuer=command.issuer,
        resources=tracked.event.resources if tracked else (),
        person_reason=command.person_reason,
        key=command.key,
        expires=command.expires,
        act="prepare" if command.act == "prepare" else "approve",
    )


def receipt(approval: Approval, observer: Observer, now: datetime) -> RecordDraft:
    """Return the receipt of one step of an approval, or the answer to a ping; `rsn` is the
    approver's own text.
    """
    about = f"scheduledEvents/{approval.event_id}" if approval.event_id else None
    data = ReceiptData(
        vm=observer.vm,
        node=observer.node,
        bridge=observer.bridge,
        jti=approval.jti,
        evt=approval.event_id,
        state=approval.state,
        reason=approval.reason,
        actor=approval.actor,
        issuer=approval.issuer,
        resources=approval.resources,
        rsn=approval.person_reason,
        act=None if approval.event_id is None else approval.act,
    )
    subject = about or f"bridge/{observer.bridge.instance_id}"
    return draft(APPROVAL, data, subject=subject, now=now)
