"""The events that have changed since a number."""

from __future__ import annotations

from support.console.records import FakeVm
from support.console.writer_bench import AT, WriterBench, open_snapshot, received

from console.db.connection.opening import Database
from console.db.connection.transactions import newest_change_number
from console.db.events.changed_events import changed_event_ids


def test_what_changed_since_a_number_is_found(
    database: Database, writer_bench: WriterBench
) -> None:
    """A reader of the rows after a number finds what later transactions changed, and
    nothing else.
    """
    one, two = FakeVm(name="one"), FakeVm(name="two")
    writer_bench.take(
        received(one.event("E", resources=["one"])), received(two.event("E", resources=["one"]))
    )
    with open_snapshot(database) as snapshot:
        before = newest_change_number(snapshot.connection)
    writer_bench.take(received(one.heartbeat(), at=AT + 1), received(two.heartbeat(), at=AT + 1))
    with open_snapshot(database) as snapshot:
        assert changed_event_ids(snapshot.connection, before) == []
    writer_bench.take(received(one.event("E", transition="ended", resources=["one"]), at=AT + 9))
    with open_snapshot(database) as snapshot:
        assert changed_event_ids(snapshot.connection, before) == ["E"]
        assert [each.event.state for each in snapshot.events.events_with_ids(["E"])] == ["ended"]
