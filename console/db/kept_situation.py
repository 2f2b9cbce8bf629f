"""The newest reading of turns, kept for the answers of this console."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from console.db import turns
from console.db.snapshot import Snapshot
from console.db.transactions import newest_number
from console.db.turn_situation import read_situation
from console.turns.groups import Grouping
from console.turns.situation import TurnSituation

_KEPT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    number: int
    """The newest transaction that was read."""
    at: float
    situation: TurnSituation

    def is_good_in(self, snapshot: Snapshot) -> bool:
        """Check whether the reading can still be used: nothing about turns was written since, and
        little time has passed.
        """
        if not 0.0 <= snapshot.now - self.at < _KEPT_SECONDS:
            return False
        return not turns.has_changed(snapshot.connection, self.number, {})


class KeptSituation:
    """Reads what people see of turns. May be used from any thread.

    A reading of a large fleet takes long, so the next answers use it too, until something about
    turns is written, and for a second at most. Whatever decides reads for itself.
    """

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def seen_in(self, snapshot: Snapshot) -> TurnSituation:
        """Return what turns are decided from, as a snapshot has it, or up to a second earlier."""
        with self._lock:  # who waits here needs the same reading
            if self._kept is None or not self._kept.is_good_in(snapshot):
                self._kept = _Kept(
                    number=newest_number(snapshot.connection),
                    at=snapshot.now,
                    situation=read_situation(snapshot, self._grouping),
                )
            return self._kept.situation
