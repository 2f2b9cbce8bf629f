"""The progress of intake, for status, readiness and metrics; written by the writer alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from console.ingest.delivery import Delivery, Refused
from console.records.incoming import IncomingRecord

_ANSWER_SECONDS: Final = 5.0
"""After that a database that says nothing is in trouble."""


class Progress:
    """Counters since the start, and the database's trouble if there is any."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._logged: str | None = None
        self._asked_at: float | None = None
        """Since when an answer is waited for."""
        self.committed_at: float | None = None
        self.records: Counter[str] = Counter()
        """By source; duplicates and heartbeats count."""
        self.quarantined: Counter[tuple[str, str]] = Counter()
        """By source and reason."""
        self.duplicates = 0
        self.last_record_at: dict[str, float] = {}
        """By source."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with the database: what it said last, or that it says nothing."""
        asked_at = self._asked_at
        if self._logged is None and asked_at is not None:
            waited = self._monotonic() - asked_at
            return "database: it does not answer" if waited > _ANSWER_SECONDS else None
        return self._logged

    def asked(self) -> None:
        """The database is asked to do something."""
        self._asked_at = self._monotonic()

    def failed(self, words: str) -> bool:
        """The database failed; whether that is new."""
        is_new = self._logged != words
        self._logged, self._asked_at = words, None
        return is_new

    def worked(self) -> bool:
        """The database did what it was asked; whether that is new."""
        is_new = self._logged is not None
        self._logged = self._asked_at = None
        return is_new

    def refused(self, source: str) -> dict[str, int]:
        """What was not a record of ours since the start, by reason, the most frequent first."""
        found = Counter(
            {reason: n for (name, reason), n in list(self.quarantined.items()) if name == source}
        )
        return dict(found.most_common())

    def count(self, batch: Sequence[Delivery], *, duplicates: int, at: float) -> None:
        """A batch was committed."""
        self.committed_at = at
        self.duplicates += duplicates
        for delivery in batch:
            records = [item for item in delivery.items if isinstance(item, IncomingRecord)]
            if records:
                self.records[delivery.source] += len(records)
                self.last_record_at[delivery.source] = records[-1].received_at
            for item in delivery.items:
                if isinstance(item, Refused):
                    self.quarantined[(delivery.source, item.reason)] += 1
