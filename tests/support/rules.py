"""The keys of a rule with values to try, for every test that must not forget a key."""

from __future__ import annotations

from typing import Any, Final

EVENT_MATCH: Final[dict[str, Any]] = {
    "event_type": ["Freeze"],
    "event_source": ["Platform"],
    "max_duration": 9,
}
"""The keys of `EventMatch`, which groups have too; with these values they match a freeze of 9 s
that Azure announces.
"""
OTHER_EVENT_MATCH: Final[dict[str, Any]] = {
    "event_type": ["Reboot"],
    "event_source": ["User"],
    "max_duration": 8,
}
"""The same keys; with any one of these values they do not match that freeze."""
NARROWING: Final[dict[str, Any]] = {**EVENT_MATCH, "affects_this_vm": False}
"""The keys of a rule that decide which events match."""
DECIDING: Final[dict[str, Any]] = {
    "max_resources": 3,
    "after": ["drain"],
    "leader": "first",
    "takeover": 60,
}
"""The keys of a rule that decide what becomes of an event that matches."""
EVERY_KEY: Final[dict[str, Any]] = {"name": "all keys", **NARROWING, **DECIDING}
"""Every key of a rule, with a value that is not its default, as settings give it."""
