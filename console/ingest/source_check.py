"""Tries the connection to a broker or a hub for `seb console check`; reads nothing from it."""

from __future__ import annotations

from uuid import uuid4

from console.ingest.settings import EventHubSource, MqttSource
from sinks.base import SinkError
from sinks.shared.errors import UnreachableError

_SECONDS = 15.0


def check_source(source: MqttSource | EventHubSource) -> str:
    """Connect and disconnect; return the address. Raises `UnreachableError` with the remedy."""
    try:
        return _broker(source) if isinstance(source, MqttSource) else _hub(source)
    except SinkError as error:
        raise UnreachableError(str(error)) from None


def _broker(source: MqttSource) -> str:
    from sinks.kinds.mqtt.client import plan_for  # noqa: PLC0415  # only where there is one
    from sinks.kinds.mqtt.session import Session  # noqa: PLC0415

    # Not the client id of the running console: that would end its session.
    session = Session(plan_for(source, client_id=f"seb-console-check-{uuid4().hex[:8]}"))
    session.connect(timeout=_SECONDS)
    session.close(timeout=_SECONDS)
    return f"connected to {session.plan.address}"


def _hub(source: EventHubSource) -> str:
    from sinks.kinds.eventhub.errors import diagnose  # noqa: PLC0415  # only where there is one
    from sinks.kinds.eventhub.producer import HubProducer  # noqa: PLC0415
    from sinks.shared.call_with_timeout import call_with_timeout  # noqa: PLC0415

    address = source.address()
    if source.namespace is not None:
        return f"{address} (not tried: it needs the managed identity)"
    link = HubProducer(address)
    try:
        partitions = call_with_timeout(_SECONDS, link.partitions)
    except Exception as error:  # noqa: BLE001  # whatever the SDK raises, in our words
        raise UnreachableError(diagnose(error).text(address)) from None
    finally:
        link.close()
    return f"{address} has {partitions} partitions"
