"""The suite that every sink has to pass finds sinks that break the contract."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from sinks.base import Check, SinkError
from sinks.testing import (
    BRIDGE_TYPES,
    EVENT_TYPES,
    MemorySink,
    SinkContract,
    sample_bridge_record,
    sample_record,
    sample_records,
)
from wire.record import Record


class Shelf:
    """A destination in memory, which can be made unreachable."""

    settings: Mapping[str, Any] = {}
    secrets: Sequence[str] = ()

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.away = False
        self.stops = 0

    def received(self) -> Sequence[bytes]:
        return [record.body for record in self.records]

    def stop(self) -> None:
        self.away = True
        self.stops += 1

    def start(self) -> None:
        self.away = False


class ShelfSink(MemorySink):
    shelf: Shelf

    def deliver(self, records: Sequence[Record]) -> None:
        if self.shelf.away:
            raise SinkError("the shelf is away")
        self.shelf.records.extend(records)

    def check(self) -> Sequence[Check]:
        if self.shelf.away:
            return [Check(level="fail", text="the shelf is away", remedy="bring it back")]
        return [Check(level="ok", text="the shelf is here")]


class StrictSink(ShelfSink):
    """Fails if `open` is called on an open sink, and forgets its connection when the shelf goes."""

    is_open = False
    stops_seen = 0

    def open(self) -> None:
        assert not self.is_open
        self.is_open = True
        self.stops_seen = self.shelf.stops

    def deliver(self, records: Sequence[Record]) -> None:
        assert self.is_open
        if self.stops_seen != self.shelf.stops:
            raise SinkError("the connection is gone")
        super().deliver(records)

    def close(self) -> None:
        self.is_open = False


class TestTheSmallestSinkThatKeepsTheContract(SinkContract):
    """The suite passes for a sink that has only what the contract requires."""

    sink_class: ClassVar[type[ShelfSink]] = ShelfSink

    @pytest.fixture
    def destination(self) -> Shelf:
        return Shelf()

    def make(self, destination: Any) -> ShelfSink:
        made = self.sink_class()
        made.shelf = destination
        return made


class TestASinkThatIsOpenedOnlyOnce(TestTheSmallestSinkThatKeepsTheContract):
    """The suite opens no sink that is open."""

    sink_class = StrictSink


class Forgetful(ShelfSink):
    def deliver(self, records: Sequence[Record]) -> None:
        super().deliver(records[:1])


class Careless(ShelfSink):
    def deliver(self, records: Sequence[Record]) -> None:
        if not self.shelf.away:
            super().deliver(records)


class Rewriting(ShelfSink):
    def deliver(self, records: Sequence[Record]) -> None:
        super().deliver([sample_record(record.sequence + 1) for record in records])


class Silent(ShelfSink):
    def check(self) -> Sequence[Check]:
        return []


@pytest.mark.parametrize(
    ("sink_class", "test"),
    [
        (Forgetful, "test_a_full_batch_arrives_whole"),
        (Forgetful, "test_delivers_the_same_bytes_in_order"),
        (Rewriting, "test_a_repeated_record_keeps_its_bytes"),
        (Rewriting, "test_a_large_record_arrives"),
        (Careless, "test_an_unreachable_destination_is_a_sink_error"),
        (Silent, "test_check_is_silent_about_secrets"),
        (Silent, "test_check_tells_what_to_do"),
    ],
)
def test_the_suite_finds_a_sink_that_breaks_the_contract(
    sink_class: type[ShelfSink], test: str
) -> None:
    """The suite fails for a sink that breaks the contract."""

    class Suite(SinkContract):
        pass

    Suite.sink_class = sink_class
    shelf = Shelf()
    sink = sink_class()
    sink.shelf = shelf
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Suite(), test)(sink, shelf)


def test_there_is_one_sample_of_each_kind() -> None:
    """There is a sample of every type of record, each with its own place in the stream and with the
    same bytes on each call.
    """
    records = sample_records()
    assert [record.type for record in records] == [*EVENT_TYPES, *BRIDGE_TYPES]
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    assert len({record.id for record in records}) == len(records)
    assert records == sample_records()


def test_a_sample_of_a_kind_that_does_not_exist() -> None:
    """A sample of an unknown type raises `KeyError`."""
    with pytest.raises(KeyError):
        sample_record(record_type="seb.event.other.v1")
    with pytest.raises(KeyError):
        sample_bridge_record(record_type="seb.bridge.other.v1")


def test_a_sink_in_memory_raises_its_failures() -> None:
    """`MemorySink` raises its failures in order, one for each call, and then keeps the records."""
    sink = MemorySink()
    sink.failures = [SinkError("one")]
    with pytest.raises(SinkError, match="one"):
        sink.deliver([sample_record()])
    sink.deliver([sample_record()])
    assert sink.records == [sample_record()]
