"""A database into which a test commits what VMs send, with a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import delete
from support.console.records import FakeVm

from console.db.batches import batch_transaction
from console.db.batches.loaded_rows import load
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.schema.tables import listening
from console.db.snapshot import Snapshots
from console.db.sources.listening import ListeningInterval, write_listening
from console.db.upkeep.timed_changes import write_timed_changes
from console.fleet.fold import fold
from console.fleet.values.event import KnownEvent
from console.fleet.values.vm import HeardVm
from console.records.incoming import IncomingMessage
from console.records.parse import parse_record
from wire.record import Record

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


class Intake:
    """A database, and a clock that the test moves."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = NOW
        self._since = _ALWAYS
        self.snapshots = Snapshots(database, clock=self._seconds)
        with database.writing.begin() as connection:
            heard = ListeningInterval(source="web", since=0.0, until=NOW.timestamp() + 86_400)
            write_listening(connection, "test", [heard], seen_at=NOW.timestamp() + 86_400)

    def listen_since(self, moment: datetime) -> None:
        """Nobody has listened before that moment; from it on, until `let_pass` ends."""
        self._since = moment
        self._listen()

    def _listen(self) -> None:
        now = self.now.timestamp()
        with self.database.writing.begin() as connection:
            connection.execute(delete(listening))
            heard = ListeningInterval(source="web", since=self._since.timestamp(), until=now)
            write_listening(connection, "test", [heard], seen_at=now)

    def _seconds(self) -> float:
        return self.now.timestamp()

    def take(self, *records: Record) -> None:
        """Commit records in one transaction, each received now."""
        at = self.now.timestamp()
        items = [parse_record(each.body, source="web", received_at=at) for each in records]
        self.hear(*items)

    def hear(self, *items: IncomingMessage) -> None:
        """Commit what came in of VMs, each received now."""
        with write_to(self.database) as (connection, change_number):
            batch_transaction.write_batch(
                connection, items, change_number, now=self.now.timestamp()
            )

    def hear_as_written(self, *items: IncomingMessage) -> None:
        """As `hear`, by a console up to version 0.2.0, to which an event's id in another case was
        another one.
        """
        with write_to(self.database) as (connection, change_number):
            changes = fold(load(connection, items), items)
            batch_transaction.write_changes(
                connection, changes, change_number, now=self.now.timestamp()
            )

    def event(self, event_id: str = "E", scope: str | None = None) -> KnownEvent:
        """An event as it is now."""
        with self.snapshots.open() as snapshot:
            found = snapshot.events.find_event(event_id, scope)
        assert found is not None
        return found

    def vm(self, vm: FakeVm) -> HeardVm:
        """A VM as it is now."""
        with self.snapshots.open() as snapshot:
            found = snapshot.vms.find_vm(vm.vm_id)
        assert found is not None
        return found

    def let_pass(self, seconds: float) -> None:
        """Time passes, and the writer looks at what that changes."""
        self.now += timedelta(seconds=seconds)
        if self._since != _ALWAYS:
            self._listen()
        with write_to(self.database) as (connection, change_number):
            write_timed_changes(connection, change_number, now=self.now.timestamp())
