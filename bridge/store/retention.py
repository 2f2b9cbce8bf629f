"""Deletes old records and ended events; none that a sink or a dead letter still needs."""

from __future__ import annotations

import sqlite3
from typing import Final

from bridge.store.absences import NEWEST_RECORDS

KEEP_DELIVERED: Final = 1_000
"""How many delivered records stay readable, for pages and for a sink that is added later."""
PRUNE_EVERY: Final = 100
"""How many records are committed between two calls of `prune`."""
PRUNE_ROWS: Final = 500
"""How many are deleted at once: a large backlog must not delay the next commit."""
KEEP_FORGOTTEN: Final = 100_000
"""How many ended events keep their revision: at a hundred a day those of nearly three years."""
FREE_PAGES: Final = 512
"""How many free pages stay in the file for records to come."""
_BEHIND_DEAD: Final = (
    "SELECT acknowledged.sequence FROM dead JOIN records AS older USING (sequence) "
    "JOIN acknowledged ON acknowledged.event = older.event AND acknowledged.sink = dead.sink"
)
"""The newest acknowledged record of each event that has a dead record at the same sink: if the dead
one is tried again, this one is delivered again after it.
"""


def prune(connection: sqlite3.Connection) -> bool:
    """Delete some records that every sink has; return whether there may be more. Raises
    `sqlite3.Error`.
    """
    # Rows, not sequences: heartbeats are counted too, and each replaces the one before it.
    oldest_kept = connection.execute(
        "SELECT sequence FROM records ORDER BY sequence DESC LIMIT 1 OFFSET ?", (KEEP_DELIVERED,)
    ).fetchone()
    if oldest_kept is None:
        return False
    (slowest,) = connection.execute("SELECT min(cursor) FROM sinks WHERE active").fetchone()
    floor = oldest_kept[0] if slowest is None else min(oldest_kept[0], slowest)
    pruned = connection.execute(
        "DELETE FROM records WHERE sequence IN ("  # noqa: S608  # our own words
        "SELECT sequence FROM records WHERE sequence <= ? "
        "AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.sequence = records.sequence) "
        f"AND sequence NOT IN ({_BEHIND_DEAD}) AND sequence NOT IN ({NEWEST_RECORDS}) "
        "ORDER BY sequence LIMIT ?)",
        (floor, PRUNE_ROWS),
    )
    connection.execute(
        "DELETE FROM acknowledged WHERE event NOT IN (SELECT key FROM events) "
        "AND event NOT IN (SELECT event FROM records WHERE event IS NOT NULL)"
    )
    return pruned.rowcount >= PRUNE_ROWS


def prune_forgotten(connection: sqlite3.Connection) -> None:
    """Delete the revisions that were forgotten longest ago. Raises `sqlite3.Error`."""
    connection.execute(
        "DELETE FROM forgotten WHERE place <= ("
        "SELECT place FROM forgotten ORDER BY place DESC LIMIT 1 OFFSET ?)",
        (KEEP_FORGOTTEN,),
    )


def shrink(connection: sqlite3.Connection) -> None:
    """Give free pages back to the disk, not synced. Raises `sqlite3.Error`."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    if free > 2 * FREE_PAGES:
        # `execute` would stop at the first page: Python takes a row without columns for the end.
        connection.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES})")
