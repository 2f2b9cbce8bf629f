"""Counters of what was taken in, and whether the database answers, for status, readiness and
metrics; only the writer changes it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.records.incoming import IncomingRecord

_ANSWER_SECONDS: Final = 5.0
"""After this time without an answer the database counts as failing."""


class IntakeCounters:
    """Counters since the start, and the state of the database."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._logged: str | None = None
        self._begun_at: float | None = None
        """When the writer began to wait for an answer; None while it does not."""
        self.committed_at: float | None = None
        self.records: Counter[str] = Counter()
        """Records by source, including duplicates and heartbeats."""
        self.quarantined: Counter[tuple[str, str]] = Counter()
        """Quarantined messages by source and reason."""
        self.duplicates = 0
        self.last_record_at: dict[str, float] = {}
        """When the last record came, by source."""

    @property
    def trouble(self) -> str | None:
        """The problem of the database: its last error, or that it does not answer; None if it
        works.
        """
        begun_at = self._begun_at
        if self._logged is None and begun_at is not None:
            waited = self._monotonic() - begun_at
            return "database: it does not answer" if waited > _ANSWER_SECONDS else None
        return self._logged

    def note_begin(self) -> None:
        """Note that a query of the database begins."""
        self._begun_at = self._monotonic()

    def note_failure(self, message: str) -> bool:
        """Note that the query failed; return whether the error is new."""
        is_new = self._logged != message
        self._logged = message
        self._begun_at = None
        return is_new

    def note_success(self) -> bool:
        """Note that the query succeeded; return whether the one before it had failed."""
        is_new = self._logged is not None
        self._logged = self._begun_at = None
        return is_new

    def quarantined_of(self, source: str) -> dict[str, int]:
        """Return how many messages of a source were quarantined since the start, by reason, the
        most frequent first.
        """
        found = Counter(
            {reason: n for (name, reason), n in list(self.quarantined.items()) if name == source}
        )
        return dict(found.most_common())

    def count(self, batch: Sequence[SourceBatch], *, duplicates: int, at: float) -> None:
        """Count a batch that was committed."""
        self.committed_at = at
        self.duplicates += duplicates
        for delivery in batch:
            records = [item for item in delivery.items if isinstance(item, IncomingRecord)]
            if records:
                self.records[delivery.source] += len(records)
                self.last_record_at[delivery.source] = records[-1].received_at
            for item in delivery.items:
                if isinstance(item, QuarantinedMessage):
                    self.quarantined[(delivery.source, item.reason)] += 1
