"""Records about the bridge itself: the data of its heartbeat, start, stop and troubles."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from wire.fields import (
    BOOLEAN,
    POSITION,
    TEXT,
    TIME,
    Field,
    FieldError,
    FieldType,
    list_of,
    number,
    object_of,
    or_null,
    whole_number,
    word_of,
)
from wire.observer import Observer

_MAX_INTERVAL_SECONDS: Final = 10 * 24 * 3600


def _interval(value: Any) -> float:
    seconds: float = number().read(value)
    if not 0 <= seconds <= _MAX_INTERVAL_SECONDS:  # 0: the test heartbeat of versions up to 0.2.0
        raise FieldError("this is no interval of heartbeats")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat: it says that the bridge is alive."""

    interval_seconds: Annotated[
        float, Field(FieldType({"type": "number"}, _interval), "Seconds until the next one is due")
    ]
    last_poll_time: Annotated[
        datetime | None, Field(or_null(TIME), "When IMDS last gave a good document")
    ]
    pending_events: Annotated[int, Field(whole_number(least=0), "How many events are pending")]
    last_record_sequence: Annotated[
        int,
        Field(
            POSITION,
            "Sequence of the newest record that is not a heartbeat; a gap in the stream above it "
            "hides only heartbeats that newer ones replaced",
        ),
    ]
    prepares: Annotated[
        bool, Field(BOOLEAN, "Whether a program prepares the VM", is_optional=True)
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The start of a run of the bridge."""

    sinks: Annotated[tuple[str, ...], Field(list_of(TEXT), "Names of the configured sinks")]
    restarted: Annotated[
        bool | None,
        Field(or_null(BOOLEAN), "The VM's boot id changed since the last run; null: not known"),
    ]
    gap_seconds: Annotated[
        float | None,
        Field(or_null(number()), "Seconds since the last good poll of IMDS; null: never"),
    ]
    prepares: Annotated[
        bool, Field(BOOLEAN, "Whether a program prepares the VM", is_optional=True)
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The orderly end of a run of the bridge."""

    reason: Annotated[str, Field(TEXT, "What ended it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReset:
    """The loss of the store, in place of which a new one was created."""

    reason: Annotated[str, Field(TEXT, "What was wrong with the old one")]
    previous_stream: Annotated[
        str | None, Field(or_null(TEXT), "Stream id of the old store, where it could be read")
    ]
    kept_as: Annotated[
        str | None, Field(or_null(TEXT), "File name that the old store was renamed to")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """The permanent refusal of a record by a sink."""

    sink: Annotated[str, Field(TEXT, "The sink's name")]
    record_id: Annotated[str, Field(TEXT)]
    record_type: Annotated[str, Field(TEXT)]
    record_sequence: Annotated[int, Field(POSITION, "Its sequence")]
    reason: Annotated[str, Field(TEXT, "Why")]
    attempts: Annotated[int, Field(whole_number(least=1), "How often it was tried")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which IMDS was not polled, or changes were not committed."""

    since: Annotated[datetime, Field(TIME, "The last good poll before", name="from")]
    until: Annotated[datetime, Field(TIME, "The first good poll after")]
    seconds: Annotated[float, Field(number(least=0), "How long")]
    reason: Annotated[
        str,
        Field(
            word_of("restart", "reboot", "pause", "imds", "store"),
            "restart, reboot, pause, imds (not answering), or store (changes were not committed)",
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData(Observer):
    """`data` of a heartbeat."""

    heartbeat: Annotated[Heartbeat, Field(object_of(Heartbeat), "The bridge is alive")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedData(Observer):
    """`data` of the record of a start."""

    started: Annotated[Started, Field(object_of(Started), "A run of the bridge began")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedData(Observer):
    """`data` of the record of an orderly end."""

    stopped: Annotated[
        Stopped, Field(object_of(Stopped), "A run of the bridge ended in good order")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResetData(Observer):
    """`data` of the record of a store that was lost."""

    store_reset: Annotated[
        StoreReset,
        Field(
            object_of(StoreReset),
            "The store was lost and a new one begun: the stream id is new, and revisions start "
            "again",
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterData(Observer):
    """`data` of the record of a dead letter."""

    dead_letter: Annotated[
        DeadLetter, Field(object_of(DeadLetter), "A sink refused a record for good")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapData(Observer):
    """`data` of the record of a gap."""

    gap: Annotated[
        Gap,
        Field(
            object_of(Gap),
            "For a while IMDS was not polled, or changes were not committed; events that came and "
            "went meanwhile have no record",
        ),
    ]
