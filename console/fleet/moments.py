"""Moments as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(at: float | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if not at:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
