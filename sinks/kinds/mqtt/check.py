"""The lines of `seb check` about a broker. It publishes nothing, and does not disturb a running
bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import uuid4

from sinks.base import Check, SinkContext, SinkError
from sinks.kinds.mqtt.client import BrokerLimits, plan_for
from sinks.kinds.mqtt.messages import topics
from sinks.kinds.mqtt.session import Session
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.kinds.mqtt.subscription import Subscriptions

# If an error has no remedy of its own.
_REMEDY: Final = "look at the broker's log"


def check_broker(
    settings: MqttSettings, context: SinkContext, *, connect: float, answer: float, close: float
) -> Sequence[Check]:
    """Connect as another client would, without a will; the limits are in seconds."""
    found = list(_warnings(settings))
    session = None
    try:
        where = topics(context)
        # A client id of its own: the bridge's would take the running bridge's session over.
        session = Session(plan_for(settings, client_id=f"seb-check-{uuid4().hex[:12]}"))
        limits = session.connect(timeout=connect)
        require_guarantees(limits)
    except SinkError as error:
        found.append(Check.problem(error.problem, _REMEDY))
    else:
        found.append(Check.ok(_greeting(settings, limits)))
        if settings.commands:
            found.append(_subscription(session, where.command, timeout=answer))
    finally:
        if session is not None:
            session.close(timeout=close)
    return found


def require_guarantees(limits: BrokerLimits) -> None:
    """Raise `SinkError` if the broker lacks what the bridge's guarantees depend on."""
    if limits.maximum_qos < 1:
        raise SinkError(
            "the broker takes QoS 0 only and so acknowledges nothing", remedy="allow QoS 1"
        )
    if not limits.retain:
        raise SinkError(
            "the broker keeps no retained messages",
            remedy="allow them for the state and status topics",
        )


def _warnings(settings: MqttSettings) -> Iterator[Check]:
    if settings.protocol == "3.1.1":
        yield Check.warn(
            (
                "MQTT 3.1.1: a broker that refuses a message cannot say so, and it would "
                "count as delivered; messages carry no expiry and no content type"
            ),
            "use PROTOCOL 5 if the broker speaks it",
        )
    if settings.has_password and not settings.uses_tls and not settings.is_local:
        yield Check.warn(
            "the password is sent over the network without encryption",
            "turn TLS on: port 8883, or TLS__CA",
        )


def _greeting(settings: MqttSettings, limits: BrokerLimits) -> str:
    packet = limits.maximum_packet_size
    return (
        f"{settings.host}:{settings.effective_port}: connected, "
        f"MQTT {settings.protocol}, {limits.tls_version or 'no TLS'}, "
        f"QoS up to {limits.maximum_qos}, {limits.receive_maximum} in flight"
        + (f", packets up to {packet} bytes" if packet is not None else "")
    )


def _subscription(session: Session, topic: str, *, timeout: float) -> Check:
    try:
        # The bridge's own session gets the commands; this one only asks whether it may.
        asking = Subscriptions(session, lambda _: None)
        refused = asking.subscribe(topic, retained=False, timeout=timeout)
    except SinkError as error:
        refused = error.problem
    if refused is not None:
        return Check.problem(refused, _REMEDY)
    # Mosquitto, for one, grants a subscription that its ACL forbids, and sends nothing on it.
    return Check.ok(
        f"commands: the broker grants the subscription to {topic}; "
        "`seb approve --ping` tests whether they arrive"
    )
