"""Tests for authors of sinks: inherit `SinkContract`, give it a `destination` fixture, and pytest
runs the contract of `sinks.base.Sink`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pytest
from pydantic import ValidationError

from sinks.base import Sink, SinkError
from sinks.samples import (
    SAMPLE_STREAM,
    SAMPLE_TIME,
    SAMPLE_VM,
    MemorySink,
    sample_bridge_record,
    sample_context,
    sample_heartbeat,
    sample_record,
    sample_records,
)
from wire.record import BRIDGE_TYPES, EVENT_TYPES, Record


class Destination(Protocol):
    """The destination of a sink under test: real, on loopback, and able to stop and start again."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The sink's settings without `kind`, as they would come from the environment."""

    @property
    def secrets(self) -> Sequence[str]:
        """Texts in the settings that no message may show."""

    def received(self) -> Sequence[bytes]:
        """Return the body of every record that arrived, in order of arrival."""

    def stop(self) -> None:
        """Become unreachable."""

    def start(self) -> None:
        """Become reachable again at the same address, with everything that had arrived."""


class SinkContract:
    """The conformance tests. A subclass sets `sink_class` and the fixture `destination`."""

    sink_class: ClassVar[type[Sink[Any]]]

    @pytest.fixture
    def destination(self) -> Iterator[Destination]:
        """Yield a running destination; a subclass overrides this."""
        raise NotImplementedError

    @pytest.fixture
    def sink(self, destination: Destination) -> Iterator[Sink[Any]]:
        """Yield the sink, not opened yet."""
        made = self.make(destination)
        yield made
        made.close()

    def make(self, destination: Destination) -> Sink[Any]:
        """Return a new sink for the destination."""
        settings = self.sink_class.Settings(kind=self.sink_class.KIND, **destination.settings)
        return self.sink_class("under-test", settings, sample_context())

    def failure(self, sink: Sink[Any], record: Record) -> SinkError:
        """Return the error that opening the sink or delivering the record raises."""
        with pytest.raises(SinkError) as caught:
            sink.open()
            sink.deliver([record])
        return caught.value

    def test_delivers_the_same_bytes_in_order(
        self, sink: Sink[Any], destination: Destination
    ) -> None:
        """Records arrive in order, with exactly the bytes that were committed."""
        records = [sample_record(n) for n in range(1, 6)]
        sink.open()
        for start in range(0, len(records), sink.BATCH):
            sink.deliver(records[start : start + sink.BATCH])
        assert [record.body for record in records] == list(destination.received())

    def test_a_full_batch_arrives_whole(self, sink: Sink[Any], destination: Destination) -> None:
        """A sink delivers as many records in one call as its `BATCH` says."""
        records = [sample_record(n) for n in range(1, sink.BATCH + 1)]
        sink.open()
        sink.deliver(records)
        assert [record.body for record in records] == list(destination.received())

    def test_a_repeated_record_keeps_its_bytes(
        self, sink: Sink[Any], destination: Destination
    ) -> None:
        """A record that is delivered twice arrives as the same bytes, once or twice."""
        record = sample_record(7)
        sink.open()
        sink.deliver([record])
        sink.deliver([record])
        assert {record.body} == set(destination.received())

    def test_a_heartbeat_is_a_record_too(self, sink: Sink[Any], destination: Destination) -> None:
        """The sink delivers a record without an event like any other."""
        record = sample_heartbeat()
        sink.open()
        sink.deliver([record])
        assert [record.body] == list(destination.received())

    def test_a_large_record_arrives(self, sink: Sink[Any], destination: Destination) -> None:
        """The sink delivers a record that lists a thousand VMs."""
        record = sample_record(1, resources=[f"vmss_{n}" for n in range(1000)])
        sink.open()
        sink.deliver([record])
        assert [record.body] == list(destination.received())

    def test_an_unreachable_destination_is_a_sink_error(
        self, sink: Sink[Any], destination: Destination
    ) -> None:
        """If the destination is unreachable, `open` or `deliver` raises `SinkError`, which shows no
        secret.
        """
        destination.stop()
        error = self.failure(sink, sample_record())
        shown = f"{error} {error!r}"
        assert str(error)
        assert error.delivered == 0
        assert not [secret for secret in destination.secrets if secret in shown]

    def test_delivers_after_the_destination_is_back(
        self, sink: Sink[Any], destination: Destination
    ) -> None:
        """After a failure, `close` and `open`, the sink delivers the same record."""
        record = sample_record()
        destination.stop()
        self.failure(sink, record)
        sink.close()
        destination.start()
        sink.open()
        sink.deliver([record])
        assert record.body in destination.received()

    def test_the_destination_may_go_away_and_come_back(
        self, sink: Sink[Any], destination: Destination
    ) -> None:
        """A destination that restarts between two records costs at most an error or two."""
        first = sample_record(1)
        second = sample_record(2)
        sink.open()
        sink.deliver([first])
        destination.stop()
        destination.start()
        is_open = True
        for _ in range(5):
            try:
                if not is_open:
                    sink.open()
                    is_open = True
                sink.deliver([second])
                break
            except SinkError:
                sink.close()
                is_open = False
        assert destination.received()[-1] == second.body

    def test_check_is_silent_about_secrets(self, sink: Sink[Any], destination: Destination) -> None:
        """`check` of a running destination has a good line and no secret, and sends no record."""
        lines = list(sink.check())
        assert lines
        assert not [line for line in lines if line.level == "fail"]
        assert not destination.received()

    def test_check_tells_what_to_do(self, sink: Sink[Any], destination: Destination) -> None:
        """`check` of an unreachable destination has a `fail` line with a remedy and without a
        secret.
        """
        destination.stop()
        failed = [line for line in sink.check() if line.level == "fail"]
        assert failed
        shown = " ".join(f"{line.text} {line.remedy}" for line in failed)
        assert all(line.remedy for line in failed)
        assert not [secret for secret in destination.secrets if secret in shown]

    def test_maintain_is_harmless(self, sink: Sink[Any], destination: Destination) -> None:
        """`maintain` of an idle sink sends no record."""
        sink.open()
        sink.maintain()
        assert not destination.received()

    def test_close_and_abort_are_harmless(self, sink: Sink[Any], destination: Destination) -> None:
        """A sink may be closed twice, or aborted and closed, open or not."""
        sink.close()
        sink.open()
        sink.abort()
        sink.close()
        sink.close()

    def test_the_class_says_what_it_is(self, sink: Sink[Any], destination: Destination) -> None:
        """The class has a kind that fits a variable's name, a batch, a deadline, and a text for
        each setting.
        """
        assert self.sink_class.KIND.isidentifier()
        assert self.sink_class.KIND.islower()
        assert self.sink_class.BATCH >= 1
        assert sink.deadline > 0
        fields = self.sink_class.Settings.model_fields
        assert not [name for name, field in fields.items() if not field.description]

    def test_settings_refuse_unknown_names(self, destination: Destination) -> None:
        """A misspelt setting is an error, not ignored."""
        with pytest.raises(ValidationError):
            self.sink_class.Settings.model_validate(
                {"kind": self.sink_class.KIND, "no_such_setting": "x", **destination.settings}
            )

    def test_settings_are_frozen_and_hide_secrets(self, destination: Destination) -> None:
        """Settings cannot change under a running sink, and printing them shows no secret."""
        settings = self.sink_class.Settings(kind=self.sink_class.KIND, **destination.settings)
        with pytest.raises(ValidationError):
            settings.kind = "other"  # type: ignore[misc]
        shown = f"{settings!r} {settings} {settings.model_dump()}"
        assert not [secret for secret in destination.secrets if secret in shown]


__all__ = [
    "BRIDGE_TYPES",
    "EVENT_TYPES",
    "SAMPLE_STREAM",
    "SAMPLE_TIME",
    "SAMPLE_VM",
    "Destination",
    "MemorySink",
    "SinkContract",
    "sample_bridge_record",
    "sample_context",
    "sample_heartbeat",
    "sample_record",
    "sample_records",
]
