"""What a million VMs would need, reckoned from the size and the number of the messages.

The limits are those of Azure's documentation, whose pages are named; nothing here was measured at
such a size.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from sinks.kinds.mqtt.messages import state_message, status_message, topics
from sinks.samples import sample_bridge_record, sample_context, sample_heartbeat, sample_record
from wire.record import BRIDGE_STARTED

VMS: Final = 1_000_000
HEARTBEAT_SECONDS: Final = 60
STATE_SECONDS: Final = 3600
RETAINED_A_VM: Final = 2
"""Its state and its status."""

# Azure, "Event Hubs quotas and limits".
TU_EVENTS: Final = 1000
TU_BYTES: Final = 1_000_000
STANDARD_TUS: Final = 40
STANDARD_CONNECTIONS: Final = 5_000
PU_CONNECTIONS: Final = 10_000
PREMIUM_PUS: Final = 16
CU_CONNECTIONS: Final = 100_000
RECEIVERS: Final = 5
# Azure, "Event Grid quotas and limits"; retained messages: "MQTT Retain support".
GRID_SESSIONS: Final = 10_000
GRID_MESSAGES: Final = 1000
GRID_BYTES: Final = 1_000_000
GRID_RETAINED: Final = 10_000
GRID_TUS: Final = 40


def message_bytes() -> dict[str, int]:
    """Bytes of the payload of each message that a VM sends."""
    context = sample_context()
    where = topics(context)
    state = state_message((), context=context, now=context.now(), where=where)
    status = status_message(None, context=context, where=where, sink="mqtt", commands=False)
    return {
        "event": len(sample_record().body),
        "heartbeat": len(sample_heartbeat().body),
        "started": len(sample_bridge_record(record_type=BRIDGE_STARTED).body),
        "state": len(state.payload),
        "status": len(status.payload),
    }


def hub_lines(sizes: Mapping[str, int]) -> Sequence[str]:
    """What Event Hubs would have to take, and how much of it that is."""
    events = VMS / HEARTBEAT_SECONDS
    bytes_ = events * sizes["heartbeat"]
    units = math.ceil(max(events / TU_EVENTS, bytes_ / TU_BYTES))
    return (
        (
            f"Throughput: a heartbeat of {sizes['heartbeat']} bytes a minute from each makes "
            f"{events:,.0f} events and {bytes_ / 1e6:.1f} MB a second. A throughput unit takes "
            f"{TU_EVENTS:,} events or 1 MB a second: {units} units, of {STANDARD_TUS} that a "
            "standard namespace can have. With `SEB_HEARTBEAT_INTERVAL=300` it is a fifth of that."
        ),
        (
            f"Connections: each VM keeps one. A standard namespace takes {STANDARD_CONNECTIONS:,}, "
            f"so {VMS // STANDARD_CONNECTIONS} of them; a premium one {PU_CONNECTIONS:,} for each "
            f"of up to {PREMIUM_PUS} processing units, so "
            f"{math.ceil(VMS / (PU_CONNECTIONS * PREMIUM_PUS))} of them; a dedicated cluster "
            f"{CU_CONNECTIONS:,} for each capacity unit, so {VMS // CU_CONNECTIONS} units. "
            "Connections, not throughput, are what a fleet on Event Hubs runs out of first."
        ),
        (
            f"Reading: {RECEIVERS} readers to a partition and consumer group, whatever the tier: "
            "control planes can read a hub, a fleet cannot listen on it. Commands come by MQTT or "
            "HTTPS."
        ),
    )


def broker_lines(sizes: Mapping[str, int]) -> Sequence[str]:
    """What an MQTT cluster would have to take, and an Event Grid namespace for it."""
    beats, states = VMS / HEARTBEAT_SECONDS, VMS / STATE_SECONDS
    messages = beats + states
    bytes_ = beats * sizes["heartbeat"] + states * sizes["state"]
    by_sessions = math.ceil(VMS / GRID_SESSIONS)
    # Azure: a retained publish counts as two operations.
    by_rate = math.ceil(max((beats + 2 * states) / GRID_MESSAGES, bytes_ / GRID_BYTES))
    by_retained = math.ceil(RETAINED_A_VM * VMS / GRID_RETAINED)
    units = max(by_sessions, by_rate, by_retained)
    return (
        (
            f"Steady: {messages:,.0f} messages and {bytes_ / 1e6:.1f} MB a second (a heartbeat a "
            f"minute, a state of {sizes['state']} bytes an hour), {VMS:,} sessions, and "
            f"{RETAINED_A_VM * VMS:,} retained messages."
        ),
        (
            f"In throughput units of an Event Grid namespace: {by_rate} for the messages, "
            f"{by_sessions} for the sessions ({GRID_SESSIONS:,} each), {by_retained} for the "
            f"retained messages ({GRID_RETAINED:,} each): {units} units, or "
            f"{math.ceil(units / GRID_TUS)} namespaces of {GRID_TUS}."
        ),
    )


def wave_line(share: float, seconds: float, away: str) -> str:
    """What a restart of the broker would bring."""
    return (
        f"A restart: with the spread that was measured for a broker that is away for {away} s, the "
        f"busiest second brings {share:.0%} of the fleet, {share * VMS:,.0f} connections, each "
        f"with two messages, and all are back within {seconds:.0f} s. A cluster that takes fewer "
        "refuses the rest, which double their waits to a minute at most: at 20,000 connections a "
        f"second a million VMs are back in about {VMS // 20_000} s, whatever the jitter. No fleet "
        "should hang on one broker that restarts as one."
    )


SOURCES: Final = (
    (
        "Azure Event Hubs documentation, page *Azure Event Hubs quotas and limits* "
        "(`learn.microsoft.com/azure/event-hubs/event-hubs-quotas`)"
    ),
    (
        "Azure Event Grid documentation, pages *Azure Event Grid quotas and limits* and *MQTT "
        "Retain support* (`learn.microsoft.com/azure/event-grid/quotas-limits`, `…/mqtt-retain`)"
    ),
)
