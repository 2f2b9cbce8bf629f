"""The rows that transactions of decisions write: claims, ends, and where a command goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from console.approvals.sending import Outgoing
from console.db import decisions as rows
from console.fleet.values import Command, Decision

LEASE_SECONDS: Final = 5.0
"""Seconds that another console leaves the sending of a command to the one that has claimed it."""


def claimed(decision: Decision, console: str, now: float) -> Decision:
    """The decision as claimed by a run of a console, which sends its command now."""
    return replace(decision, claimed_by=console, claimed_until=now + LEASE_SECONDS)


def ended(decision: Decision, outcome: str, reason: str | None, at: float) -> Decision:
    """The decision with its end."""
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
    """The command with the site of its VM; None if the VM is not known any more."""
    site = rows.site_of(connection, command.vm_id)
    return None if site is None else Outgoing(command=command, site=site)
