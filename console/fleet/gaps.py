"""Finds the records of a stream that are missing: counts sequences, and fills gaps when they come
late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor
from typing import Final

from console.fleet.values.stream import SequenceGap, Stream
from console.records.incoming import IncomingRecord
from wire.record import BRIDGE_STARTED

_DOUBT_SECONDS: Final = 0.5
_DRIFT: Final = 0.01
"""How late the next heartbeats may be, as a share of the time since a heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCount:
    """The result of `count` for one record."""

    stream: Stream
    gaps: list[SequenceGap]
    is_new: bool
    """False if this sequence of the stream was known already, or was taken for a heartbeat's."""


def count(
    stream: Stream | None,
    gaps: list[SequenceGap],
    record: IncomingRecord,
    *,
    interval: float | None,
) -> SequenceCount:
    """Return the stream and its gaps after a record; `interval` is that of the VM's heartbeats.

    A heartbeat that a newer one replaced before its delivery is not a gap. A heartbeat states the
    newest sequence that is not a heartbeat (`lastRecordSequence`). Between other records, as many
    missing sequences count as heartbeats as were due there, in intervals from the last one that
    came.
    """
    if stream is None:
        first = Stream(
            vm_id=record.vm.vm_id,
            stream=record.stream,
            low=record.sequence,
            high=record.sequence,
            high_time=record.time,
            beat_time=record.time if _begins_an_interval(record) else None,
            beat_lag=record.sent_at - record.time if _begins_an_interval(record) else None,
        )
        return SequenceCount(stream=first, gaps=[], is_new=True)
    if record.sequence == stream.high + 1 and not gaps:
        return SequenceCount(stream=_with_newest(stream, record), gaps=gaps, is_new=True)
    if record.sequence < stream.low:
        before = replace(stream, low=record.sequence)
        found = _gap(stream, record, record.sequence + 1, stream.low - 1)
        return SequenceCount(stream=before, gaps=[*found, *gaps], is_new=True)
    if record.sequence <= stream.high:
        left = list(_without(gaps, record.sequence, record.sequence))
        return SequenceCount(stream=stream, gaps=left, is_new=left != gaps)
    if interval is None and record.interval is not None:
        # Only the first heartbeat states the interval, and so how many of them were due.
        gaps = list(_doubtless(gaps, record.interval))
    due = _heartbeats_due(stream, record, interval) if interval else 0
    last = record.sequence - 1
    if record.last_record is not None:
        due = max(0, due - max(0, last - record.last_record))
        last = min(last, record.last_record)
        due = min(due, last - stream.high - 1)  # this one is certainly not a heartbeat
        gaps = list(_without(gaps, record.last_record + 1, record.sequence))
    gaps = [*gaps, *_gap(stream, record, stream.high + 1 + max(0, due), last)]
    return SequenceCount(stream=_with_newest(stream, record), gaps=gaps, is_new=True)


def _with_newest(stream: Stream, record: IncomingRecord) -> Stream:
    """Return the stream after its newest record."""
    is_beat = _begins_an_interval(record)
    return Stream(
        vm_id=stream.vm_id,
        stream=stream.stream,
        low=stream.low,
        high=record.sequence,
        high_time=record.time,
        beat_time=record.time if is_beat else stream.beat_time,
        beat_lag=record.sent_at - record.time if is_beat else stream.beat_lag,
    )


def _heartbeats_due(stream: Stream, record: IncomingRecord, interval: float) -> int:
    """Return how many heartbeats the bridge may have made between the stream's newest record and
    this one.

    A record has the time of the observation, but the sequence of the commit: a heartbeat may be
    before or after a record of nearly the same time. The intervals between heartbeats are never too
    short, but may be a little too long.
    """
    until = record.time - (interval / 2 if record.kind == "heartbeat" else 0.0)
    if stream.beat_time is None:
        return int(max(0.0, until - stream.high_time) / interval)
    since = stream.high_time - stream.beat_time
    doubt = min(interval / 2, _DOUBT_SECONDS + _DRIFT * max(0.0, since))
    before = max(0, floor((since - doubt) / interval))
    return max(0, floor((until - stream.beat_time + doubt) / interval) - before)


def _gap(stream: Stream, record: IncomingRecord, first: int, last: int) -> list[SequenceGap]:
    if last < first:
        return []
    return [
        SequenceGap(
            vm_id=stream.vm_id,
            stream=stream.stream,
            first=first,
            last=last,
            found_at=record.received_at,
            seconds=abs(record.time - stream.high_time),
        )
    ]


def _begins_an_interval(record: IncomingRecord) -> bool:
    return record.kind == "heartbeat" or record.type == BRIDGE_STARTED


def _doubtless(gaps: Iterable[SequenceGap], interval: float) -> Iterable[SequenceGap]:
    """Yield the gaps without the sequences that may belong to heartbeats of that interval."""
    for gap in gaps:
        due = floor((gap.seconds + 2 * _DOUBT_SECONDS) / interval)
        if due < gap.size:
            yield replace(gap, first=gap.first + due)


def _without(gaps: Iterable[SequenceGap], first: int, last: int) -> Iterable[SequenceGap]:
    """Yield the gaps without the sequences from `first` to `last`."""
    for gap in gaps:
        if last < gap.first or gap.last < first:
            yield gap
            continue
        if gap.first < first:
            yield replace(gap, last=first - 1)
        if last < gap.last:
            yield replace(gap, first=last + 1)
