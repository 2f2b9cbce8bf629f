"""Decisions, commands and receipts as values, for tests of what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from console.approvals.decision_situation import DecisionSituation, ShownEvent
from console.fleet.candidates import Candidate
from console.fleet.values.decision import Decision, Receipt, VmCommand
from console.records.incoming import ReceiptContent

AT = 1_800_000_000.0
"""When everything begins, in seconds since 1970."""


def decision(**changes: Any) -> Decision:
    """Ada approves event E, ten minutes before its time."""
    made = Decision(
        id="d1",
        event_id="E",
        fingerprint="sha256:1",
        kind="approve",
        state="open",
        actor="ada",
        reason="why not",
        at=AT,
        not_before=AT + 600,
    )
    return replace(made, **changes)


def command(vm_id: str = "vm-1", **changes: Any) -> VmCommand:
    """A VM is asked over the source `broker`; sent at once, good for eight seconds."""
    made = VmCommand(
        jti=f"jti of {vm_id}",
        decision_id="d1",
        event_id="E",
        fingerprint="sha256:1",
        vm_id=vm_id,
        channel="broker",
        subject="ada",
        reason="why not",
        made_at=AT,
        expires_at=AT + 8,
        sent_at=AT,
    )
    return replace(made, **changes)


def receipt(
    state: str,
    reason: str | None = None,
    *,
    vm_id: str = "vm-1",
    jti: str | None = None,
    actor: str = "ada",
    after: float = 1,
) -> Receipt:
    """A VM says what became of its command, so many seconds after the decision."""
    jti = jti or f"jti of {vm_id}"
    content = ReceiptContent(jti=jti, event_id="E", state=state, reason=reason, actor=actor)
    return Receipt(
        record_id=f"{jti} {state} {reason} {after}",
        vm_id=vm_id,
        at=AT + after,
        time=AT + after,
        content=content,
    )


def candidate(vm_id: str, channel: str = "broker") -> Candidate:
    """A VM that can be asked."""
    return Candidate(vm_id=vm_id, channel=channel, gave_up=False, is_connected=True, heard_at=AT)


def situation(*commands: VmCommand, after: float, **changes: Any) -> DecisionSituation:
    """So many seconds after the decision: the event is as it was, and vm-2 could be asked too."""
    made = DecisionSituation(
        decision=decision(),
        commands=commands,
        receipts=(),
        event=ShownEvent(state="scheduled", fingerprint="sha256:1"),
        candidates=[candidate("vm-1"), candidate("vm-2")],
        connected={"broker": AT - 100},
        now=AT + after,
        up_since=AT - 100,
    )
    return replace(made, **changes)
