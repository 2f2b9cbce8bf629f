"""What became of a command or of a rule's decision, as a record; values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from bridge.events.normalize import Observer
from sinks.record import APPROVAL, RecordDraft

State = Literal["rejected", "accepted", "posted", "failed", "confirmed"]


def receipt(
    observer: Observer,
    now: datetime,
    *,
    jti: str,
    event_id: str | None,
    state: State,
    reason: str | None,
    actor: str,
    issuer: str | None,
    resources: Sequence[str],
) -> RecordDraft:
    """The record of one step of an approval, or of the answer to a ping (which has no event).

    `actor` is a token's `sub`, `rule:<name>` or `local:<user>`; `resources` are the VMs that the
    approval releases, as the event listed them.
    """
    return RecordDraft(
        type=APPROVAL,
        source=observer.vm.source,
        subject=f"scheduledEvents/{event_id}" if event_id else f"bridge/{observer.instance_id}",
        time=now,
        partition_key=observer.vm.vm_id,
        data={
            **observer.to_wire(),
            "jti": jti,
            "evt": event_id,
            "state": state,
            "reason": reason,
            "actor": actor,
            "issuer": issuer,
            "resources": list(resources),
        },
    )
