"""An event hub as a destination: a record is delivered once the hub has accepted it."""

from sinks.kinds.eventhub.sink import EventHubSink

__all__ = ["EventHubSink"]
