"""An approval under way: how far it is, and how IMDS took the tries so far. It sends no request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bridge.imds.exchange import ImdsError
from bridge.store.approvals import Asked, Entry, State

RETRY_SECONDS: Final = 1.0
"""How soon IMDS is asked again where it could not be reached; each further wait is doubled."""
MAX_RETRY_SECONDS: Final = 5.0
# Azure: 400 and 405 do not heal; 404, 410, 429 and 5xx do, and a peer met a single 401.
_REFUSED_FOR_GOOD: Final = frozenset({"http_400", "http_405"})
_NO_CONNECTION: Final = frozenset({"refused", "unreachable"})


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One entry and its tries. Times are monotonic seconds."""

    entry: Entry
    """As it is on disk."""
    first_seen: datetime | None
    """When the event that is asked for appeared: what returned later is another one."""
    effect: Asked = "in vain"
    """What the tries can have brought about: this run's, and those that the disk told of."""
    taken: bool = False
    """Whether IMDS took one, and only the store did not."""
    due: float = 0.0
    """Not to be asked again before."""
    _wait: float = 0.0
    _refused: bool = False

    def failed(self, error: ImdsError, now: float) -> bool:
        """Note that IMDS failed; returns whether it will always refuse."""
        self._wait = min(2 * self._wait or RETRY_SECONDS, MAX_RETRY_SECONDS)
        self.due = now + max(self._wait, error.retry_after or 0.0)
        if error.reason in _REFUSED_FOR_GOOD:
            # A request before this one may have started the event, and it may be over: then IMDS
            # does not know it any more, and the next look says so.
            if self._refused or self.effect == "in vain":
                return True
            self._refused = True
        elif error.reason.startswith("http_5") and self.effect != "maybe":
            self.effect = "error"
        elif error.reason not in _NO_CONNECTION and not error.reason.startswith("http_4"):
            self.effect = "maybe"
        return False

    def end(self, *, begun: bool) -> tuple[State, str | None]:
        """The final state, with its reason, where the event has begun or is gone."""
        sure = self.entry.state == "posted" or self.taken or self.effect == "maybe"
        if sure or (begun and self.effect == "error"):
            return "confirmed", None
        return "failed", "imds_refused" if self.effect == "error" else "imds_unreachable"
