"""An HTTP endpoint as a destination: requests are signed after Standard Webhooks, and have a total
time limit.
"""

from sinks.kinds.webhook.sink import WebhookSink

__all__ = ["WebhookSink"]
