"""What the owner's rules say of each pending event, each thing once.

It remembers decisions through restarts, by the ledger, and carries none of them out.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bridge.clock import Clock
from bridge.known import KnownEvent
from bridge.ledger import Entry, Ledger, entry_of
from bridge.policy import Decision, Rule, Verdict, decide

log: Final = logging.getLogger(__name__)

Acknowledged = Callable[[str, KnownEvent], bool]
"""Whether a sink, by name, has acknowledged an event's latest record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A rule has decided: the cause that is to be acted upon, or to be refused."""

    entry: Entry
    approve: bool


class Rulings:
    """Asks the rules. For one thread at a time."""

    def __init__(
        self,
        rules: Sequence[Rule],
        ledger: Ledger,
        clock: Clock,
        *,
        vm_name: str,
        acknowledged: Acknowledged,
    ) -> None:
        self._rules = rules
        self._ledger = ledger
        self._clock = clock
        self._vm_name = vm_name
        self._acknowledged = acknowledged
        self._decided: set[str] = set()
        self._said: dict[str, str] = {}
        self._since: dict[str, tuple[datetime, float]] = {}

    def on(self, known: KnownEvent) -> Ruling | None:
        """What is newly decided about an event; None where nothing is. Raises `StoreError`."""
        decision = decide(
            self._rules,
            known,
            vm_name=self._vm_name,
            now=known.first_seen + timedelta(seconds=self._waited(known)),
            acknowledged=lambda sink: self._acknowledged(sink, known),
        )
        if decision is None:
            return None
        self._say_once(known, decision)
        state = f"{known.event.key}\n{known.revision}\n{known.fingerprint}"
        cause = f"rule\n{decision.rule.name}\n{state}"
        if decision.verdict is Verdict.WAIT or cause in self._decided:
            return None
        if self._ledger.has(cause):
            self._decided.add(cause)
            return None
        actor = f"rule:{decision.rule.name}"
        entry = entry_of(known, cause=cause, jti=str(uuid.uuid4()), actor=actor)
        return Ruling(entry=entry, approve=decision.verdict is Verdict.APPROVE)

    def _waited(self, known: KnownEvent) -> float:
        """Seconds since the event was first seen, in this life of it.

        The wall clock counts up to this run's first look, the monotonic one from there on: a clock
        that is set, as by the first time sync after a boot, must not let the next VM act while the
        leader still has its time.
        """
        kept, monotonic = self._since.get(known.event.key), self._clock.monotonic()
        if kept is None or kept[0] != known.first_seen:
            before = (self._clock.now() - known.first_seen).total_seconds()
            kept = (known.first_seen, monotonic - max(0.0, before))
            self._since[known.event.key] = kept
        return monotonic - kept[1]

    def _say_once(self, known: KnownEvent, decision: Decision) -> None:
        said = f"{decision.verdict.value}: {decision.why}"
        if self._said.get(known.event.key) != said:
            self._said[known.event.key] = said
            log.info(
                said,
                extra={
                    "action": "rule_decision",
                    "rule": decision.rule.name,
                    "event": known.event.event_id,
                },
            )
