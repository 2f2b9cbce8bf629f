"""What was decided on events, as far as it still counts. An event that is announced again, or whose
VM has lost its store, can be approved again: what came before is past.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select

from console.db import rows
from console.db.bulk import portions
from console.db.decisions import decision_rows
from console.db.schema.tables import event, receipt, record, report, vm
from console.fleet.commands import UNDER_WAY_STATES
from console.fleet.outcomes import BY_CONSOLE
from console.fleet.values.decision import UNDECIDED, DecisionHistory, Receipt
from console.fleet.values.keys import EventKey

LOST_SECONDS: Final = 900.0
"""How long an approval still counts if the VM that began it has lost its store, from the first
message of the new store on: Azure may have been told to start the event, and starts it meanwhile.
"""


def current_decisions(
    connection: Connection, states: Mapping[EventKey, str], now: float
) -> tuple[dict[EventKey, DecisionHistory], dict[EventKey, list[Receipt]]]:
    """Return, for events in these states, what was decided on them as they are announced now, and
    the receipts that count.
    """
    ids = list(dict.fromkeys(event_id for event_id, _ in states))
    receipts, past = _receipts(connection, ids, now)
    decided = decision_rows.decision_histories(connection, ids)
    histories = {
        key: _without_past_decision(decided.get(key, UNDECIDED), state, receipts.get(key, ()), past)
        for key, state in states.items()
    }
    return histories, receipts


def _receipts(
    connection: Connection, event_ids: Sequence[str], now: float
) -> tuple[dict[EventKey, list[Receipt]], set[tuple[str, str]]]:
    """Return the receipts of the VMs that each event names by their own reports, the oldest
    first, and the approvals that no longer count, by vmId and jti. An approval no longer counts
    if the event was announced as Scheduled again after the VM had seen it begin or go. Receipts
    for what no VM can continue are left out.
    """
    found: dict[EventKey, list[Receipt]] = {}
    past: dict[tuple[str, str], float] = {}
    for portion in portions(event_ids):
        for row in connection.execute(_receipts_query(portion)):
            if row.lost_at is not None and row.lost_at < now - LOST_SECONDS:
                continue
            found_receipt = rows.receipt_of(row)
            found.setdefault(EventKey(row.event_id, row.of_event), []).append(found_receipt)
            if row.is_past:
                past[(found_receipt.vm_id, found_receipt.content.jti)] = found_receipt.time
    if past:
        found = {key: _without_past(several, past) for key, several in found.items()}
    return found, set(past)


def _receipts_query(event_ids: Sequence[str]) -> Select[Any]:
    """Return the receipts about these events, each with whether its approval no longer counts."""
    own = and_(
        report.c.event_id == receipt.c.event_id,
        report.c.vm_id == receipt.c.vm_id,
        report.c.is_own == 1,
    )
    same = and_(event.c.event_id == report.c.event_id, event.c.scope == report.c.scope)
    # The second one is also the end of an approval that a change overtook.
    has_begun = or_(
        receipt.c.state == "confirmed",
        and_(
            receipt.c.state == "failed",
            receipt.c.reason == "imds_unreachable",
            event.c.started_at.is_not(None),
        ),
    )
    is_past = and_(
        has_begun,
        event.c.state == "scheduled",
        report.c.over == 0,
        report.c.first_seen_at <= receipt.c.time,
        report.c.time > receipt.c.time,
    )
    columns = (
        report.c.scope.label("of_event"),
        is_past.label("is_past"),
        _lost_at().label("lost_at"),
    )
    query = select(receipt, *columns).join(report, own).join(event, same)
    query = query.join(vm, vm.c.vm_id == receipt.c.vm_id)
    query = query.join(record, record.c.id == receipt.c.record_id, isouter=True)
    # The receipt of a prepare command says nothing about an approval.
    is_approval = func.coalesce(receipt.c.act, "") != "prepare"
    return query.where(receipt.c.event_id.in_(event_ids), is_approval).order_by(receipt.c.at)


def _lost_at() -> ColumnElement[Any]:
    """Return the SQL for the time at which it was known that no VM continues what a receipt says
    was begun; NULL if a VM may. None does if the VM is retired, or has another store by which the
    event is still Scheduled.
    """
    is_begun = and_(receipt.c.state.in_(UNDER_WAY_STATES), event.c.state == "scheduled")
    has_new_store = and_(
        record.c.stream != vm.c.stream, report.c.stream == vm.c.stream, report.c.over == 0
    )
    new = record.alias("of_new_store")
    since = (
        select(func.min(new.c.received_at))
        .where(new.c.vm_id == vm.c.vm_id, new.c.stream == vm.c.stream)
        .correlate(vm)
        .scalar_subquery()
    )
    return case(
        (and_(is_begun, vm.c.retired_at.is_not(None)), vm.c.retired_at),
        # An event that is as it was has a record already, with the id that this store gives it too.
        (and_(is_begun, has_new_store), func.coalesce(since, report.c.time)),
        else_=None,
    )


def _without_past(
    receipts: Iterable[Receipt], past: Mapping[tuple[str, str], float]
) -> list[Receipt]:
    """Return the receipts without those up to the confirmation of an approval that no longer
    counts.
    """
    return [each for each in receipts if each.time > past.get((each.vm_id, each.content.jti), -1.0)]


def _without_past_decision(
    decided: DecisionHistory,
    event_state: str,
    receipts: Iterable[Receipt],
    past: Collection[tuple[str, str]],
) -> DecisionHistory:
    """Return what was decided, without a decision that ended before the event was announced again:
    its approval no longer counts, or it was overtaken by the start or end of the event.
    """
    last = decided.decision
    if last is None or last.outcome is None:
        return decided
    own = (each for each in decided.commands if each.decision_id == last.id)
    is_past = any((each.vm_id, each.jti) in past for each in own)
    if event_state == "scheduled" and last.outcome == "overtaken":
        actors = {each.content.actor for each in receipts}
        is_past |= last.outcome_reason not in {*BY_CONSOLE, *actors}
    return replace(decided, decision=None) if is_past else decided
