"""The stream of records over HTTP, as server-sent events."""

import pytest
from support.store_helpers import draft

from bridge.api.event_stream import MAX_STREAMS, Streams, TooManyError, resumed
from bridge.store.database import Store
from bridge.store.history import History


def test_records_come_as_server_sent_events(store: Store) -> None:
    """Each record is sent with its place in the stream and with exactly its committed bytes."""
    history = History(store)
    (record,) = store.commit([draft(1)])
    left = iter([False, True])
    told = b"".join(Streams().open(history, 0, lambda: next(left)))
    assert told == (
        f"retry: 2000\nid: {store.stream}/0\n\n".encode()
        + f"id: {store.stream}/1\nevent: record\ndata: ".encode()
        + record.body
        + b"\n\n"
    )


def test_the_end_of_the_bridge_ends_the_stream(store: Store) -> None:
    """The end of the bridge ends every open stream."""
    history = History(store)
    history.close()
    assert len(list(Streams().open(history, 0, lambda: False))) == 1


def test_only_so_many_may_follow(store: Store) -> None:
    """The number of streams is limited; a stream that ends makes room once, however often it is
    closed.
    """
    streams, history = Streams(), History(store)
    opened = [streams.open(history, 0, lambda: False) for _ in range(MAX_STREAMS)]
    with pytest.raises(TooManyError, match="follow the records already"):
        streams.open(history, 0, lambda: False)
    for _ in range(2):
        opened[0].close()  # type: ignore[attr-defined]  # as the server does
    streams.open(history, 0, lambda: False)
    with pytest.raises(TooManyError):
        streams.open(history, 0, lambda: False)


@pytest.mark.parametrize(
    ("last_event_id", "after", "expected"),
    [
        (None, None, 3),
        (None, 1, 1),
        ("{stream}/2", None, 2),
        ("{stream}/2", 1, 2),
        ("{stream}/99", None, 3),
        ("another/2", None, 0),
        ("{stream}/two", None, 0),
        ("", None, 0),
        ("nonsense", None, 0),
    ],
)
def test_a_reader_continues_where_it_was(
    store: Store, last_event_id: str | None, after: int | None, expected: int
) -> None:
    """A new reader gets the next records; a reader of another store, or without a valid place, gets
    all of them.
    """
    store.commit([draft(number) for number in range(3)])
    given = last_event_id and last_event_id.format(stream=store.stream)
    assert resumed(History(store), given, after) == expected
