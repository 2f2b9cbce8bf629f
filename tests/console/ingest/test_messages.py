"""Messages on the topics of bridges: what their topic, their wait at the broker and their VM
prove.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.console.records import FakeVm

from console.ingest.messages import filters, read_message, retained_filters
from console.ingest.source_batch import QuarantinedMessage
from console.records.incoming import IncomingRecord, IncomingStatus
from sinks.kinds.mqtt.messages import EVENT_EXPIRY
from wire.record import Record

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
AT = NOW.timestamp()
DAY = timedelta(days=1)


def come(record: Record, topic: str, *, expiry: int | None) -> IncomingRecord:
    """Return a record as it comes in now."""
    found = read_message(topic, record.body, expiry=expiry, source="mqtt", received_at=AT)
    assert isinstance(found, IncomingRecord)
    return found


def test_what_lay_at_the_broker_for_a_day_was_sent_a_day_ago() -> None:
    """A record that waited at the broker for a day, by its remaining lifetime, counts as sent a day
    ago.
    """
    vm = FakeVm()
    record = vm.event("E", now=NOW - DAY)
    found = come(record, vm.topic(), expiry=EVENT_EXPIRY - 86_400)
    assert found.sent_at == AT - 86_400


def test_the_fingerprint_covers_every_character_as_the_bridge_writes_it() -> None:
    """The console computes the same fingerprint as the bridge for every character, although it uses
    another library.
    """
    vm = FakeVm()
    words = "".join(chr(code) for code in (*range(1, 0x3000), 0xE000, 0xFFFF, 0x1F600, 0x10FFFF))
    record = vm.event("E", event_type=words, resources=[words[:200], "web-1"])
    found = come(record, vm.topic(), expiry=None)
    assert found.event is not None
    assert found.event.event.event_type == words


def test_a_clock_that_is_wrong_is_not_a_wait() -> None:
    """A VM whose clock is a day behind is heard now if its message did not wait at the broker."""
    vm = FakeVm()
    found = come(vm.event("E", now=NOW - DAY), vm.topic(), expiry=EVENT_EXPIRY)
    assert found.sent_at == AT


@pytest.mark.parametrize("expiry", [None, 3600])
def test_another_lifetime_shows_no_wait(expiry: int | None) -> None:
    """A record without a lifetime, or with one that no bridge sets, counts as sent when it came
    in.
    """
    vm = FakeVm()
    assert come(vm.event("E", now=NOW), vm.topic(), expiry=expiry).sent_at == AT


def test_a_heartbeat_has_a_life_of_two_intervals() -> None:
    """A heartbeat that waited for a minute and a half, by its lifetime of two intervals, counts as
    sent then.
    """
    vm = FakeVm()
    beat = vm.heartbeat(now=NOW - timedelta(seconds=90))
    assert come(beat, vm.topic(), expiry=30).sent_at == AT - 90


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("seb/v1/default/vm/another/event", "foreign_vm"),
        ("seb/v1/default/vm/another/status", "foreign_vm"),
        ("seb/v1/default/vm", "foreign_topic"),
    ],
)
def test_a_topic_that_is_not_its_vms_is_refused(topic: str, reason: str) -> None:
    """A message on another VM's topic is refused, whatever it contains."""
    vm = FakeVm()
    body = vm.status() if topic.endswith("status") else vm.event("E").body
    found = read_message(topic, body, expiry=None, source="mqtt", received_at=AT)
    assert isinstance(found, QuarantinedMessage)
    assert found.reason == reason


def test_a_retained_status_proves_contact_only_for_its_own_time() -> None:
    """A retained status that is a day old proves contact for its own time only."""
    vm = FakeVm()
    body = vm.status("online", time="2026-11-21T12:00:00.000Z")
    found = read_message(vm.topic("status"), body, expiry=None, source="mqtt", received_at=AT)
    assert isinstance(found, IncomingStatus)
    assert found.heard_at == AT - 86_400


def test_an_empty_message_only_deletes_what_was_retained() -> None:
    """An empty message is neither a document nor an error."""
    topic = FakeVm().topic("state")
    assert read_message(topic, b"", expiry=None, source="mqtt", received_at=AT) is None


def test_only_records_are_shared() -> None:
    """Only the filters for records are shared: with a shared subscription a console would not get
    retained messages.
    """
    assert filters("console")[0] == "$share/console/seb/v1/+/vm/+/event"
    assert retained_filters() == ["seb/v1/+/vm/+/state", "seb/v1/+/vm/+/status"]
    assert all(not topic.startswith("$share") for topic in filters(None))
