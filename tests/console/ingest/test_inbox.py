"""The queue of the writer is limited in number and bytes."""

from __future__ import annotations

import queue
import threading

import pytest

from console.ingest.inbox import Inbox
from console.ingest.source_batch import SourceBatch


def delivery(size: int) -> SourceBatch:
    """Return a delivery of so many bytes."""
    return SourceBatch(source="s", items=(), on_end=lambda _stored: None, size=size)


def test_first_in_first_out() -> None:
    """Deliveries come out in the order in which they went in, and their bytes are counted."""
    inbox = Inbox(most=10, most_bytes=100)
    one, two = delivery(10), delivery(20)
    inbox.put(one)
    inbox.put(two)
    assert len(inbox) == 2
    assert one is inbox.pop(timeout=0)
    assert two is inbox.pop(timeout=0)
    assert inbox.pop(timeout=0) is None
    assert len(inbox) == 0


@pytest.mark.parametrize(("most", "most_bytes"), [(2, 1000), (1000, 20)], ids=["number", "bytes"])
def test_a_full_inbox_refuses(most: int, most_bytes: int) -> None:
    """A queue at either limit has no room until a delivery is taken."""
    inbox = Inbox(most=most, most_bytes=most_bytes)
    inbox.put(delivery(10))
    inbox.put(delivery(10))
    with pytest.raises(queue.Full):
        inbox.put(delivery(10), timeout=0)
    inbox.pop(timeout=0)
    inbox.put(delivery(10), timeout=0)


def test_one_that_is_too_large_is_taken_alone() -> None:
    """A delivery above the limit is accepted when nothing else waits."""
    inbox = Inbox(most=10, most_bytes=20)
    inbox.put(delivery(1))
    with pytest.raises(queue.Full):
        inbox.put(delivery(50), timeout=0)
    inbox.pop(timeout=0)
    inbox.put(delivery(50), timeout=0)


def test_a_waiting_source_continues_once_there_is_room() -> None:
    """A source that waits for room continues as soon as the writer has taken a delivery."""
    inbox = Inbox(most=1, most_bytes=100)
    inbox.put(delivery(1))
    waiting = threading.Thread(target=inbox.put, args=(delivery(2), 20))
    waiting.start()
    inbox.pop(timeout=0)
    found = inbox.pop(timeout=20)
    waiting.join(20)
    assert found is not None
    assert found.size == 2
