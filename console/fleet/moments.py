"""Times in the form in which the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime

from wire.moment import rfc3339


def moment(at: float | None) -> str | None:
    """Return the time as RFC 3339 in UTC with milliseconds."""
    return rfc3339(datetime.fromtimestamp(at, UTC)) if at else None


def seconds_of(moment: object) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 time; None if the text is not one."""
    if not isinstance(moment, str):
        return None
    try:
        at = datetime.fromisoformat(moment)
        return at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
