"""The newest facts of turns, kept for a second, for pages and for the worker."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from console.db.connection.transactions import newest_change_number
from console.db.decisions import turn_rows
from console.db.snapshot import Snapshot
from console.db.turn_facts.turn_facts import TurnSettings, read_turn_facts
from console.turns.facts import TurnFacts

_KEPT_SECONDS: Final = 1.0
"""What follows from time alone, such as the end of a rest, is seen after this time."""
_SHOWN_SECONDS: Final = 2.0
"""For so long, pages show what the worker has read: it reads again each second."""
_STEP_SECONDS: Final = 0.5
"""For so long, a step may follow from what the check for work has read: it takes the lock of the
database meanwhile.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    change_number: int
    """The newest transaction that was read."""
    at: float
    facts: TurnFacts

    def is_good_in(self, snapshot: Snapshot, seconds: float) -> bool:
        """Check whether the facts can still be used: nothing about turns was written since, and
        less than these seconds have passed.
        """
        if not 0.0 <= snapshot.now - self.at < seconds:
            return False
        return not turn_rows.has_changed(snapshot.connection, self.change_number, self._awaited())

    def _awaited(self) -> Mapping[str, float]:
        """Return the VMs whose next message may end a turn, since its event is over, and when each
        was last heard. Other messages that have only heartbeats change nothing about turns.
        """
        vms = self.facts.vms
        over = (turn for turn in self.facts.turns.values() if turn.over_at is not None)
        vm_ids = {vm_id for turn in over if turn.is_held for vm_id in turn.vm_ids}
        return {vm_id: vms[vm_id].heard_at for vm_id in vm_ids & vms.keys()}


class KeptTurnFacts:
    """Reads the facts of turns. May be used from any thread.

    To read them of a large fleet takes long, so they are read again only once something about turns
    was written, or after a second.
    """

    def __init__(self, settings: TurnSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def facts_for(self, snapshot: Snapshot) -> TurnFacts:
        """Return the facts as a snapshot has them, or up to a second earlier. What is returned
        twice is the same object.
        """
        with self._lock:  # who waits here needs the same facts
            if self._kept is None or not self._kept.is_good_in(snapshot, _KEPT_SECONDS):
                self._kept = _Kept(
                    change_number=newest_change_number(snapshot.connection),
                    at=snapshot.now,
                    facts=read_turn_facts(snapshot, self._settings),
                )
            return self._kept.facts

    def facts_to_show(self, snapshot: Snapshot) -> TurnFacts:
        """Return the facts for an answer to people, as `facts_for` does, or up to two seconds
        earlier: an answer seldom waits for a reading.
        """
        kept = self._kept
        if kept is not None and kept.is_good_in(snapshot, _SHOWN_SECONDS):
            return kept.facts
        return self.facts_for(snapshot)

    def facts_for_step(self, snapshot: Snapshot) -> TurnFacts:
        """Return the facts from which a step follows, within the transaction that writes it. They
        are those of the check for work, if that was just now and no transaction has written
        anything about turns since; then to read again would give the same.
        """
        kept = self._kept
        if kept is not None and kept.is_good_in(snapshot, _STEP_SECONDS):
            return kept.facts
        return read_turn_facts(snapshot, self._settings)
