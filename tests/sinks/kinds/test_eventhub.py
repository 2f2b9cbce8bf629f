"""The Event Hubs sink: the message that a record becomes."""

import pytest
from support.amqp.cases import (
    HUB,
    bodies,
    body_of,
    consume,
    records,
    sink_for,
)
from support.amqp.server import SHARED_KEY, EventHubServer, HubFault
from support.sinks.destination import FarEnd

from sinks.base import SinkError, SinkRejected
from sinks.kinds.eventhub import EventHubSink
from sinks.testing import SAMPLE_VM, SinkContract, sample_heartbeat, sample_record


class TestContract(SinkContract):
    sink_class = EventHubSink

    @pytest.fixture
    def destination(self, hub: EventHubServer) -> FarEnd:
        return FarEnd(
            settings={"connection_string": hub.connection_string(HUB)},
            secrets=[SHARED_KEY],
            received=lambda: bodies(hub.messages(HUB)),
            stop=hub.stop,
            start=hub.start,
        )


# What arrives.


def test_the_message_carries_the_record(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """Id, event id, content type and partition key are where AMQP consumers look for them."""
    record = sample_record()
    hub_sink.deliver([record])
    (message,) = hub.messages(HUB)
    expected = (record.body, record.id, record.event_id, "application/cloudevents+json")
    assert expected == (
        message.body,
        message.message_id,
        message.correlation_id,
        message.content_type,
    )
    assert message.partition_key == SAMPLE_VM.vm_id
    hub_sink.deliver([sample_heartbeat()])
    assert hub.messages(HUB)[1].correlation_id is None


def test_the_attributes_are_application_properties(
    hub: EventHubServer, hub_sink: EventHubSink
) -> None:
    """Every CloudEvents attribute is a property to route by, named as the AMQP binding says."""
    record = sample_record(3)
    hub_sink.deliver([record])
    assert {
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": record.id,
        "cloudEvents_source": record.source,
        "cloudEvents_type": "seb.event.scheduled.v1",
        "cloudEvents_subject": record.subject,
        "cloudEvents_time": record.time,
        "cloudEvents_datacontenttype": "application/json",
        "cloudEvents_dataschema": "urn:scheduled-events-bridge:record:v1",
        "cloudEvents_sequence": "00000000000000000003",
        "cloudEvents_stream": record.stream,
        "cloudEvents_partitionkey": SAMPLE_VM.vm_id,
    } == hub.messages(HUB)[0].application_properties


def test_the_sdk_reads_back_what_was_sent(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """The SDK's own consumer gets the same bytes in the same order, from one partition."""
    sent = records(8)
    hub_sink.deliver(sent)
    got = consume(hub, count=8)
    assert [record.body for record in sent] == [body_of(event) for _, event in got]
    assert [record.id for record in sent] == [event.message_id for _, event in got]
    assert len({partition for partition, _ in got}) == 1


# Batches.


@pytest.mark.parametrize("announced", [None, 1024 * 1024])
def test_a_batch_that_is_too_large_is_split_in_order(announced: int | None) -> None:
    """A batch above the hub's limit is sent in several messages, in order; if the hub accepts less
    than it announced, batches are halved until they fit.
    """
    sent = records(30)
    limit = 4 * len(sent[0].body)
    with EventHubServer(max_message_size=limit, announced_size=announced) as hub:
        sink = sink_for(hub)
        sink.open()
        sink.deliver(sent)
        sink.close()
        assert [record.body for record in sent] == bodies(hub.messages(HUB))


@pytest.mark.parametrize("announced", [None, 1024 * 1024])
def test_a_record_that_is_too_large_is_rejected(announced: int | None) -> None:
    """A record above the hub's limit is refused for good, and those before it are counted."""
    small, large = sample_record(1), sample_record(2, description="x" * 20_000)
    with EventHubServer(max_message_size=10_000, announced_size=announced) as hub:
        sink = sink_for(hub)
        sink.open()
        with pytest.raises(SinkRejected, match="larger than") as caught:
            sink.deliver([small, large, sample_record(3)])
        sink.close()
        assert [small.body] == bodies(hub.messages(HUB))
    assert (caught.value.delivered, caught.value.tries) == (1, 1)


def test_records_of_two_vms_keep_their_keys(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """Each record keeps its own VM's partition key, also if a clone's new vmId begins in the middle
    of a backlog.
    """
    clone = type(SAMPLE_VM)(vm_id="11111111-2222-3333-4444-555555555555", name="db-1")
    sent = [sample_record(1), sample_record(2, vm=clone), sample_record(3)]
    hub_sink.deliver(sent)
    assert [record.partition_key for record in sent] == [
        message.partition_key for message in hub.messages(HUB)
    ]


def test_what_was_acknowledged_before_a_failure_is_counted() -> None:
    """After a partial failure, `delivered` of the error says how many records were acknowledged."""
    sent = records(6)
    with EventHubServer(max_message_size=4 * len(sent[0].body)) as hub:
        sink = sink_for(hub)
        sink.open()
        hub.misbehave(HubFault.REJECT, condition="com.microsoft:server-busy", after=1)
        with pytest.raises(SinkError) as caught:
            sink.deliver(sent)
        sink.close()
        assert caught.value.delivered == len(hub.messages(HUB)) > 0
