"""Queries of the past: the records of an event or a VM, gaps, and the quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection, func, select

from console.db import rows
from console.db.bulk import rows_in
from console.db.schema import tables
from console.fleet.timeline import PastRecord
from console.fleet.values.decision import Receipt
from console.fleet.values.keys import EventKey
from console.fleet.values.report import LatestReport
from console.fleet.values.stream import SequenceGap
from console.records.incoming import PreparationContent
from wire.record import PREPARATION

_MAX_RECORDS: Final = 2000
_MAX_OF_ONE: Final = 200
"""How many records of one VM about one event are shown."""
_RECORD: Final = [column for column in tables.record.columns if column.name != "body"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVm:
    """The history of a VM; records and reports with the newest first."""

    records: list[PastRecord]
    gaps: list[SequenceGap]
    reports: list[LatestReport]


def records_of_event(
    connection: Connection, key: EventKey, site: str | None = None
) -> list[PastRecord]:
    """Return the records of an event's reporters about it, in order. With `site` they are only from
    VMs of that site. Of each VM there are only the newest ones, so that one VM cannot crowd out the
    others.
    """
    r = tables.record.c
    reported = tables.report.c
    v = tables.vm.c
    of_scope = select(reported.vm_id).where(
        reported.event_id == key.event_id, reported.scope == key.scope
    )
    if site is not None:
        of_scope = of_scope.join(tables.vm, v.vm_id == reported.vm_id).where(v.site == site)
    rank = func.row_number().over(partition_by=r.vm_id, order_by=r.time.desc()).label("rank")
    some = select(r.id, rank).where(r.event_id == key.event_id, r.vm_id.in_(of_scope)).subquery()
    query = select(*_RECORD).join(some, some.c.id == r.id).where(some.c.rank <= _MAX_OF_ONE)
    query = query.order_by(r.time, r.received_at).limit(_MAX_RECORDS)
    found = connection.execute(query).all()
    ids = [row.id for row in found]
    receipts = rows_in(connection, select(tables.receipt), tables.receipt.c.record_id, ids)
    prepared = select(r.id, r.body).where(r.type == PREPARATION)
    bodies = {row.id: row.body for row in rows_in(connection, prepared, r.id, ids)}
    return _records(found, [rows.receipt_of(row) for row in receipts], bodies)


def past_of_vm(connection: Connection, vm_id: str, limit: int) -> PastVm:
    """Return the last records of a VM, its gaps, and the events that it reported."""
    r = tables.record.c
    reported = tables.report.c
    a = tables.receipt.c
    query = select(*_RECORD).where(r.vm_id == vm_id).order_by(r.time.desc()).limit(limit)
    found = connection.execute(query).all()
    wanted = select(tables.receipt).where(a.vm_id == vm_id).order_by(a.at.desc())
    receipts = [rows.receipt_of(row) for row in connection.execute(wanted.limit(limit))]
    prepared = select(r.id, r.body).where(r.vm_id == vm_id, r.type == PREPARATION)
    newest = prepared.order_by(r.time.desc()).limit(limit)
    bodies = {row.id: row.body for row in connection.execute(newest)}
    gaps = connection.execute(select(tables.gap).where(tables.gap.c.vm_id == vm_id))
    seen = (
        select(tables.report).where(reported.vm_id == vm_id).order_by(reported.first_seen_at.desc())
    )
    return PastVm(
        records=_records(found, receipts, bodies),
        gaps=[rows.gap_of(row) for row in gaps],
        reports=[rows.report_of(row) for row in connection.execute(seen.limit(limit))],
    )


def _records(
    found: Iterable[Any], receipts: Iterable[Receipt], preparations: Mapping[str, bytes]
) -> list[PastRecord]:
    """Return the rows as records; `preparations` has the bytes of the records about one, by record
    id.
    """
    by_record = {receipt.record_id: receipt for receipt in receipts}
    return [
        PastRecord(
            id=row.id,
            vm_id=row.vm_id,
            type=row.type,
            time=row.time,
            received_at=row.received_at,
            sequence=row.sequence,
            event_id=row.event_id,
            receipt=by_record.get(row.id),
            preparation=_preparation(preparations.get(row.id)),
        )
        for row in found
    ]


def _preparation(body: bytes | None) -> PreparationContent | None:
    """Return the preparation in a record, which was checked when it came in."""
    if body is None:
        return None
    data = from_json(body)["data"]
    return PreparationContent(
        event_id=data["evt"],
        fingerprint=data["evh"],
        state=data["state"],
        reason=data.get("reason"),
        cause=data.get("cause"),
    )
