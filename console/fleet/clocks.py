"""How far the clocks of VMs are behind the console's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from console.fleet.contact import DEFAULT_INTERVAL_SECONDS
from console.fleet.values.stream import Stream
from console.fleet.values.vm import Vm
from console.records.incoming import IncomingRecord

_RIGHT_SECONDS: Final = 60.0
"""A clock that is behind by no more counts as right: records take some time to arrive."""
_STEADY_SECONDS: Final = 5.0
"""How much the delays of two heartbeats may differ that came without waiting."""


def measured_clock_behind(
    vm: Vm | None, stream: Stream | None, record: IncomingRecord
) -> float | None:
    """Return how many seconds a VM's clock is behind the console's, after a record; None if the
    record does not show it. `stream`: as it was before.

    A record may arrive hours late, with the time at which it was made. But if two heartbeats arrive
    as far apart as they were made, neither of them has waited.
    """
    if vm is None:
        return None
    lag = record.sent_at - record.time
    if lag < vm.clock_behind:
        return with_clock_not_behind(vm, record.time, record.sent_at).clock_behind
    if record.kind != "heartbeat" or lag <= _RIGHT_SECONDS or stream is None:
        return None
    if stream.beat_time is None or stream.beat_lag is None or record.sequence <= stream.high:
        return None
    steady = min(_STEADY_SECONDS, (record.interval or DEFAULT_INTERVAL_SECONDS) / 4)
    is_later = record.time - stream.beat_time > steady
    is_steady = is_later and abs(lag - stream.beat_lag) <= steady
    return min(lag, stream.beat_lag) if is_steady else None


def seconds_waited(stream: Stream | None, record: IncomingRecord) -> float:
    """Return how many seconds longer than the last heartbeat a record was on its way; `stream`: as
    it was before. A VM that was cut off sends what waits there in order, the oldest first.
    """
    if stream is None or stream.beat_lag is None:
        return 0.0
    return max(0.0, record.sent_at - record.time - stream.beat_lag)


def with_clock_not_behind(vm: Vm, time: float, received_at: float) -> Vm:
    """Return the VM after a time that it reported. If that came in sooner than the clock was
    thought to allow, the clock is less far behind.
    """
    lag = received_at - time
    if lag >= vm.clock_behind:
        return vm
    return replace(vm, clock_behind=lag if lag > _RIGHT_SECONDS else 0.0)
