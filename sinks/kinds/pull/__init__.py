"""The HTTPS command channel: a connection that brings commands and accepts the receipts
for them.
"""

from sinks.kinds.pull.sink import PullSink

__all__ = ["PullSink"]
