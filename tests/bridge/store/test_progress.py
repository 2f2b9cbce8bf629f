"""What sinks have done comes to disk once, whichever thread writes it."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from support.store_helpers import NOW, draft, recipients

from bridge.store.database import Store, StoreError
from bridge.store.outbox import Outbox
from bridge.store.progress import Progress
from wire.record import EVENT_ENDED


class OvertakenStore:
    """A store in which another thread does something as soon as a transaction has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.then: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a transaction of the store, and then let the other thread do what it has to."""
        with self._store.transaction(durable=durable) as connection:
            yield connection
        if self.then:
            with ThreadPoolExecutor() as threads:
                threads.submit(self.then.pop()).result()


def test_what_a_sink_does_meanwhile_is_written_next(store: Store) -> None:
    """What a sink has done between the end of a transaction and the note that it has ended is
    written with the next one.
    """
    Outbox(store).register(recipients("ops"))
    overtaken = OvertakenStore(store)
    progress = Progress(overtaken)  # type: ignore[arg-type]
    progress.note_cursor("ops", 5)
    overtaken.then = [lambda: progress.note_cursor("ops", 6)]
    assert progress.write()
    assert store.read("SELECT cursor FROM sinks") == [(5,)]
    assert progress.write()
    assert store.read("SELECT cursor FROM sinks") == [(6,)]


def test_an_acknowledgement_that_a_retry_undoes_is_not_written_once_more(store: Store) -> None:
    """An event's end was acknowledged on a full disk, and comes to disk with a retry of the event's
    beginning, which undoes it. The end does not count before it is acknowledged again, even if the
    beginning is delivered before the retry has noted what it has written.
    """
    overtaken = OvertakenStore(store)
    outbox = Outbox(overtaken)  # type: ignore[arg-type]
    outbox.register(recipients("ops"))
    store.commit([draft(1, event_id="E-1"), draft(2, event_id="E-2")])
    for sequence in (1, 2):
        outbox.mark_dead("ops", sequence, reason="no", attempts=1, now=NOW)
    outbox.retry("ops", [2])
    (end,) = store.commit([draft(3, event_id="E-1", record_type=EVENT_ENDED)])
    outbox._progress.note_delivered("ops", "test", [end], again=False)

    def deliver_beginning() -> None:
        with suppress(StoreError):
            store.read("SELECT 1", patience=0)  # or the store is held, and this comes later
            batch = outbox.next("ops", 1)
            assert batch is not None
            assert [each.sequence for each in batch.records] == [1]
            outbox.move_past("ops", batch)

    overtaken.then = [deliver_beginning]
    outbox.retry("ops", [1])
    assert not outbox.has_acknowledged("ops", "e-1")
    while batch := outbox.next("ops", 1):
        outbox.move_past("ops", batch)
    assert outbox.has_acknowledged("ops", "e-1")
