"""What the owner's rules say of each pending event, each thing once, also after a restart."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from bridge.approval.ledger import Ledger, entry_of
from bridge.approval.policy import Decision, Rule, Verdict, decide
from bridge.clock import Clock
from bridge.events.tracked import TrackedEvent
from bridge.store.approvals import Entry

log: Final = logging.getLogger(__name__)

Acknowledged = Callable[[str, str], bool]
"""Whether a sink, by name, has acknowledged the latest record of an event, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A rule has decided: the cause that is to be acted upon, or to be refused."""

    entry: Entry
    approve: bool


@dataclass(slots=True, kw_only=True)
class _Memory:
    """What is remembered of a pending event, in this life of it."""

    first_seen: datetime
    since: float
    """Monotonic time of its first sight."""
    said: str | None = None
    decided: set[str] = field(default_factory=set)
    """Causes that the ledger has."""


class Decisions:
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
        self._memories: dict[str, _Memory] = {}

    def forget_all_but(self, pending: Collection[str]) -> None:
        """Remember nothing of events but these, by their keys."""
        for key in self._memories.keys() - set(pending):
            del self._memories[key]

    def on(self, known: TrackedEvent) -> Ruling | None:
        """What is newly decided about an event; None where nothing is. Raises `StoreError`."""
        decision = self._decide(known)
        if decision is None:
            return None
        memory = self._memory(known)
        self._say_once(known, decision, memory)
        state = f"{known.event.key}\n{known.revision}\n{known.fingerprint}"
        cause = f"rule\n{decision.rule.name}\n{state}"
        if decision.verdict is Verdict.REFUSE:
            cause += "\nrefused"  # the owner may have the rule allow it in the next run
        if decision.verdict is Verdict.WAIT or cause in memory.decided:
            return None
        if self._ledger.has(cause):
            memory.decided.add(cause)
            return None
        entry = entry_of(known, cause=cause, jti=str(uuid.uuid4()), actor=_actor(decision.rule))
        return Ruling(entry=entry, approve=decision.verdict is Verdict.APPROVE)

    def verdict(self, entry: Entry, known: TrackedEvent) -> Verdict:
        """What the rule of an entry says of the event now. Raises `StoreError`."""
        decision = self._decide(known)
        if decision is None or entry.actor != _actor(decision.rule):
            return Verdict.REFUSE
        return decision.verdict

    def _decide(self, known: TrackedEvent) -> Decision | None:
        waited = self._clock.monotonic() - self._memory(known).since
        return decide(
            self._rules,
            known,
            vm_name=self._vm_name,
            now=known.first_seen + timedelta(seconds=waited),
            acknowledged=lambda sink: self._acknowledged(sink, known.event.key),
        )

    def _memory(self, known: TrackedEvent) -> _Memory:
        """What is remembered of an event. The monotonic clock counts from this run's first poll on:
        setting the wall clock must not give the next VM its turn early.
        """
        memory = self._memories.get(known.event.key)
        if memory is None or memory.first_seen != known.first_seen:
            before = (self._clock.now() - known.first_seen).total_seconds()
            since = self._clock.monotonic() - max(0.0, before)
            memory = _Memory(first_seen=known.first_seen, since=since)
            self._memories[known.event.key] = memory
        return memory

    def _say_once(self, known: TrackedEvent, decision: Decision, memory: _Memory) -> None:
        said = f"{decision.verdict.value}: {decision.why}"
        if memory.said != said:
            memory.said = said
            log.info(
                said,
                extra={
                    "action": "rule_decision",
                    "rule": decision.rule.name,
                    "event": known.event.event_id,
                },
            )


def _actor(rule: Rule) -> str:
    return f"rule:{rule.name}"
