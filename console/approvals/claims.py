"""Changes of the rows of decisions: a claim and an end; and where a command is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from console.approvals.sending import Outgoing
from console.db import decisions
from console.fleet.values import Command, Decision

LEASE_SECONDS: Final = 5.0
"""For how long other consoles leave the sending of a command to the one that has claimed it."""


def claimed(decision: Decision, console: str, now: float) -> Decision:
    """Return the decision as claimed by a run of a console, which sends its command now."""
    return replace(decision, claimed_by=console, claimed_until=now + LEASE_SECONDS)


def ended(decision: Decision, outcome: str, reason: str | None, at: float) -> Decision:
    """Return the decision with its end."""
    return replace(
        decision,
        state="over",
        outcome=outcome,
        outcome_reason=reason,
        over_at=at,
        claimed_by=None,
        claimed_until=None,
    )


def outgoing(connection: Connection, command: Command) -> Outgoing | None:
    """Return the command with the site of its VM, or None if the VM is not known any more."""
    site = decisions.site_of(connection, command.vm_id)
    return None if site is None else Outgoing(command=command, site=site)
