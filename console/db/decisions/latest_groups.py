"""The groups of the console that was started last. Consoles on one database with different groups
would undo each other's turns, and a person at one of them could pass the budgets of the other.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from console.db.schema.tables import change


def write_latest_groups(connection: Connection, groups_hash: str) -> None:
    """Write that a console starts with these groups."""
    connection.execute(update(change).values(groups_hash=groups_hash))


def are_latest(connection: Connection, groups_hash: str) -> bool:
    """Check whether the console that was started last has these groups."""
    latest: str = connection.execute(select(change.c.groups_hash)).scalar_one()
    return latest in ("", groups_hash)
