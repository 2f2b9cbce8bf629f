"""A record as an AMQP message, and records as a batch. It never changes a record's bytes."""

from __future__ import annotations

from collections.abc import Sequence

from azure.eventhub import EventData, EventDataBatch

from wire.record import CONTENT_TYPE, DATA_CONTENT_TYPE, DATA_SCHEMA, SPECVERSION, Record


def to_event(record: Record) -> EventData:
    """Return the record in structured mode, with its attributes as properties that can be used for
    routing.
    """
    event = EventData(record.body)
    event.message_id = record.id
    if record.event_id is not None:
        event.correlation_id = record.event_id
    event.content_type = CONTENT_TYPE
    attributes = {
        "specversion": SPECVERSION,
        "id": record.id,
        "source": record.source,
        "type": record.type,
        "subject": record.subject,
        "time": record.time,
        "datacontenttype": DATA_CONTENT_TYPE,
        "dataschema": DATA_SCHEMA,
        "sequence": f"{record.sequence:020d}",
        "stream": record.stream,
        "partitionkey": record.partition_key,
    }
    # The binding allows a colon or an underscore after the prefix; JMS only knows the second.
    event.properties = {f"cloudEvents_{name}": value for name, value in attributes.items()}
    return event


def fill(batch: EventDataBatch, records: Sequence[Record]) -> int:
    """Add records of one partition key while they fit; return how many were added."""
    for count, record in enumerate(records):
        if record.partition_key != records[0].partition_key:
            return count
        try:
            batch.add(to_event(record))
        except ValueError:  # the SDK raises it if the batch is full
            return count
    return len(records)
