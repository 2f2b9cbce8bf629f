"""An event hub as a destination: what the hub has accepted, and nothing less, is delivered."""

from sinks.eventhub.sink import EventHubSink

__all__ = ["EventHubSink"]
