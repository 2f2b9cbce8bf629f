"""Looks, while IMDS is being asked, whether the cause of the POST is on disk already."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from support.faults.posts import asked

from bridge.simulator.approvals import Post


class CauseObserver:
    """Reads copies of the store, which a running bridge has locked; for `Simulator(on_approval)`.

    Whoever asked waits for its answer meanwhile.
    """

    def __init__(self, store: Path, scratch: Path) -> None:
        self._store = store
        self._copy = scratch / "copy.db"
        self.causeless: list[str] = []
        """EventIds of POSTs that came without a cause on disk."""

    def __call__(self, approval: Post) -> None:
        for event_id in asked(approval):
            # A copy that is made while the poller writes may be torn.
            if not any(self._has_cause(event_id) for _ in range(5)):
                self.causeless.append(event_id)

    def _has_cause(self, event_id: str) -> bool:
        for suffix in ("", "-wal"):
            source = self._store.with_name(self._store.name + suffix)
            self._copy.with_name(self._copy.name + suffix).write_bytes(source.read_bytes())
        with closing(sqlite3.connect(self._copy)) as connection, suppress(sqlite3.Error):
            query = "SELECT 1 FROM approvals WHERE event = ?"
            return bool(connection.execute(query, (event_id,)).fetchall())
        return False
