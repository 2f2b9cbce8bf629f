"""How IMDS was asked for an approval so far, and what its failures mean; it asks nobody itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from bridge.imdserror import ImdsError

RETRY_SECONDS: Final = 1.0
"""How soon IMDS is asked again where it could not be reached; each further wait is doubled."""
MAX_RETRY_SECONDS: Final = 5.0
# Azure: 400 and 405 do not heal; 404, 410, 429 and 5xx do, and a peer met a single 401.
_REFUSED_FOR_GOOD: Final = frozenset({"http_400", "http_405"})
_NO_CONNECTION: Final = frozenset({"refused", "unreachable"})

Meaning = Literal["unsure", "in vain", "refused"]


@dataclass(slots=True, kw_only=True)
class Tries:
    """The tries of one run. Times are monotonic seconds."""

    unsure: bool
    """Whether a request may have had its effect although its answer was lost."""
    first_seen: datetime | None
    """When the event that is asked for appeared: what returned later is another one."""
    taken: bool = False
    """Whether IMDS took one, and only the store did not."""
    due: float = 0.0
    """Not to be asked again before."""
    _wait: float = 0.0
    _refused: bool = False

    def failed(self, error: ImdsError, now: float) -> Meaning:
        """What it means that IMDS failed now: nobody knows, it had no effect, or it never will."""
        self._wait = min(2 * self._wait or RETRY_SECONDS, MAX_RETRY_SECONDS)
        self.due = now + max(self._wait, error.retry_after or 0.0)
        if error.reason in _REFUSED_FOR_GOOD:
            # A request before this one may have started the event, and it may be over: then IMDS
            # does not know it any more, and the next look says so.
            if self._refused or not self.unsure:
                return "refused"
            self._refused = True
        elif error.reason not in _NO_CONNECTION and not error.reason.startswith("http_4"):
            self.unsure = True
        return "unsure" if self.unsure else "in vain"
