"""The groups of the console that was started last. Consoles on one database with different groups
would undo each other's turns, and a person at one of them could pass the budgets of the other.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from console.db.schema.tables import change


def write_latest_groups(connection: Connection, groups_hash: str, started_at: float) -> None:
    """Write that a console was started with these groups, in seconds since 1970."""
    connection.execute(update(change).values(groups_hash=groups_hash, groups_since=started_at))


def write_groups_again(connection: Connection, groups_hash: str, started_at: float) -> None:
    """Write the same after the database has lost transactions, unless another console was started
    later.
    """
    later = update(change).where(change.c.groups_since < started_at)
    connection.execute(later.values(groups_hash=groups_hash, groups_since=started_at))


def are_latest(connection: Connection, groups_hash: str) -> bool:
    """Check whether the console that was started last has these groups."""
    latest: str = connection.execute(select(change.c.groups_hash)).scalar_one()
    return latest in ("", groups_hash)
