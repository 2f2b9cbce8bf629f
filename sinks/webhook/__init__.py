"""An HTTP endpoint as a destination: signed as Standard Webhooks say, on a total time limit."""

from sinks.webhook.sink import WebhookSink

__all__ = ["WebhookSink"]
