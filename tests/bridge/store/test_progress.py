"""What sinks have done comes to disk once, whichever thread writes it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.store_helpers import recipients

from bridge.store.database import Store
from bridge.store.outbox import Outbox
from bridge.store.progress import Progress


class OvertakenStore:
    """A store in which another thread writes as soon as a transaction has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.then: list[Callable[[], object]] = []

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a transaction of the store, and then let the other thread write."""
        with self._store.transaction(durable=durable) as connection:
            yield connection
        if self.then:
            self.then.pop()()


def test_two_threads_may_write_the_same(store: Store) -> None:
    """What another thread has written too, between the end of a transaction and the note that it
    has ended, is written.
    """
    Outbox(store).register(recipients("ops"))
    overtaken = OvertakenStore(store)
    progress = Progress(overtaken)  # type: ignore[arg-type]
    overtaken.then = [progress.write]
    progress.note_cursor("ops", 5)
    assert progress.write()
    assert store.read("SELECT cursor FROM sinks") == [(5,)]
    progress.note_cursor("ops", 6)
    assert progress.write()
    assert store.read("SELECT cursor FROM sinks") == [(6,)]
