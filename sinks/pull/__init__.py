"""Commands over HTTPS that goes out only, and the receipts that answer them.

Two sinks, so that neither's trouble holds up the other: see `sinks.pull.commands` and
`sinks.pull.receipts`.
"""

from sinks.pull.commands import PullSink
from sinks.pull.receipts import ReceiptSink

__all__ = ["PullSink", "ReceiptSink"]
