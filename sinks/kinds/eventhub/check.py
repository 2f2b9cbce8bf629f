"""The lines of `seb check` about a hub. It sends no event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinks.base import Check
from sinks.kinds.eventhub.errors import diagnose
from sinks.kinds.eventhub.producer import HubProducer
from sinks.shared.call_with_timeout import StuckError, call_with_timeout

CHECK_SECONDS: Final = 15.0
"""The limit of each of the two steps, in seconds."""


def check_hub(link: HubProducer) -> Iterator[Check]:
    """Yield the lines that say whether a link may send and how many partitions the hub has; then
    close the link.
    """
    tls = "without TLS, as an emulator on this machine" if link.address.emulator else "over TLS"
    attached = False
    try:
        call_with_timeout(CHECK_SECONDS, link.open)
        attached = True
        yield Check.ok(f"{link.address}: connected {tls}, may send")
        count = call_with_timeout(CHECK_SECONDS, link.partitions)
        yield Check.ok(f"{link.address}: {count} partitions")
    except Exception as error:  # noqa: BLE001  # the SDK raises almost anything
        yield _failed(link, error, attached=attached)
        if isinstance(error, StuckError):
            link.cut()
    finally:
        link.close()


def _failed(link: HubProducer, error: Exception, *, attached: bool) -> Check:
    trouble = diagnose(error, link_condition=link.condition())
    if attached:  # the number of partitions is only information: records can be delivered
        text = f"{link.address}: its partitions cannot be counted: {trouble.what}"
        return Check.warn(text, trouble.remedy)
    return Check.fail(f"{link.address}: {trouble.what}", trouble.remedy)
