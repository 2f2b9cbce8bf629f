"""Moments on the wire: RFC 3339, in UTC, with a Z."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return a moment in UTC as RFC 3339 with milliseconds and a Z. Raises `ValueError` on naive
    input.
    """
    if moment.tzinfo is None:
        raise ValueError("a time in a record needs a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_text(moment: datetime | None) -> str | None:
    """Return a moment in UTC as RFC 3339, with a fraction only if it has one; None stays None."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
