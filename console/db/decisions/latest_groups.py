"""The groups of the console that was started last. Consoles on one database with different groups
would undo each other's turns, and a person at one of them could pass the budgets of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, exists, or_, select, update

from console.db.bulk import Values
from console.db.schema.tables import change, listening

_GONE_SECONDS: Final = 300.0
"""A console that has not written for this long does not come back with its groups. One that stands
still for a moment does.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedGroups:
    """The groups of a run of a console."""

    hash: str
    run_id: str
    started_at: float
    """Seconds since 1970."""

    def values(self) -> Values:
        """Return the values of the columns."""
        return {
            "groups_hash": self.hash,
            "groups_run": self.run_id,
            "groups_since": self.started_at,
        }


def write_latest_groups(connection: Connection, groups: StartedGroups) -> None:
    """Write that a console was started with these groups."""
    connection.execute(update(change).values(groups.values()))


def take_the_lead(connection: Connection, groups: StartedGroups, now: float) -> None:
    """Write the same for a console that goes on, if its groups are the latest: none that was
    started later has written since, or the one that did is gone.
    """
    c = change.c
    other = listening.c
    is_there = exists().where(other.console == c.groups_run, other.seen_at >= now - _GONE_SECONDS)
    is_latest = or_(c.groups_since < groups.started_at, ~is_there)
    connection.execute(
        update(change).where(c.groups_hash != groups.hash, is_latest).values(groups.values())
    )


def are_latest(connection: Connection, groups_hash: str) -> bool:
    """Check whether the console that was started last has these groups."""
    latest: str = connection.execute(select(change.c.groups_hash)).scalar_one()
    return latest in ("", groups_hash)
