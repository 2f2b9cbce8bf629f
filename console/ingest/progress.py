"""How taking in goes, for status, readiness and metrics; written by the writer alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from console.ingest.delivery import Delivery, Refused
from console.records.incoming import IncomingRecord


class Progress:
    """Counters since the start, and the database's trouble if there is any."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        """What the database said last, while it fails."""
        self.committed_at: float | None = None
        self.records: Counter[str] = Counter()
        """By source; duplicates and heartbeats count."""
        self.quarantined: Counter[tuple[str, str]] = Counter()
        """By source and reason."""
        self.duplicates = 0
        self.last_record_at: dict[str, float] = {}
        """By source."""

    def failed(self, words: str) -> bool:
        """The database failed; whether that is news."""
        news = self.trouble != words
        self.trouble = words
        return news

    def worked(self) -> bool:
        """The database did what it was asked; whether that is news."""
        news = self.trouble is not None
        self.trouble = None
        return news

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
