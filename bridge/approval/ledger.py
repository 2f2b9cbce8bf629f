"""The ledger of approvals: each step is one transaction with its receipt."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from bridge.approval.verification import SKEW_SECONDS, SignedCommand
from bridge.events.tracked import TrackedEvent
from bridge.store.approvals import Approval, ApprovalRows
from bridge.store.database import RESET_KEY, Store
from wire.observer import Observer
from wire.receipt import ReceiptData
from wire.record import APPROVAL, RecordDraft, draft

LOST_KEY: Final = "ledger_lost"
"""In `meta`: when an earlier ledger was lost with its store, in seconds since 1970; and the last
poll before that, because the clock may have been behind when the loss was noticed.
"""


class Ledger(ApprovalRows):
    """The approvals in the store. All methods may be called from any thread."""

    def __init__(self, store: Store, now: datetime) -> None:
        """Raises `StoreError` if the store was lost and that fact cannot be written to it."""
        super().__init__(store)
        if store.meta(RESET_KEY) not in (None, "null"):
            moments = (now, store.polled_at() or now)
            store.commit(meta={LOST_KEY: " ".join(str(int(at.timestamp())) for at in moments)})
        self._lost = [int(at) for at in (store.meta(LOST_KEY) or "").split()]

    def may_have_lost(self, issued: int, now: datetime) -> bool:
        """Check whether a token of that issue time (seconds since 1970) may have been used before a
        loss.
        """
        # Not while the clock is before that moment: it was wrong then, or it is now. The issuer's
        # clock may be ahead of ours, as `verification` allows.
        return any(
            issued <= lost + SKEW_SECONDS and lost <= now.timestamp() + SKEW_SECONDS
            for lost in self._lost
        )

    def save_with_receipt(self, approval: Approval, observer: Observer, now: datetime) -> None:
        """Commit an approval in its new state, with its receipt, synced. Raises `StoreError`."""
        self.save(approval, now, receipt(approval, observer, now))

    def add_receipt(self, approval: Approval, observer: Observer, now: datetime) -> None:
        """Commit only a receipt: the cause is not used up by it. Raises `StoreError`."""
        self._store.commit([receipt(approval, observer, now)])


def approval_of(
    tracked: TrackedEvent, *, cause: str, jti: str, actor: str, why: str | None = None
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
        why=why,
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
        why=command.why,
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
        rsn=approval.why,
        act=None if approval.event_id is None else approval.act,
    )
    subject = about or f"bridge/{observer.bridge.instance_id}"
    return draft(APPROVAL, data, subject=subject, now=now)
