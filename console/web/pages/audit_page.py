"""`/audit`: who decided what, when and why, the newest first; and whether the chain is whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.approvals.refusal_reasons import REASONS
from console.audit import audit_log
from console.audit.chain import Head, as_json
from console.db import audit
from console.db.audit import SORTS, WantedRows
from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database
from console.db.connection.transactions import read_from
from console.db.decisions.decision_rows import decisions_by_id
from console.fleet.moments import seconds_of
from console.fleet.outcomes import outcome_text
from console.fleet.values.decision import Decision
from console.web.pages import labels
from console.web.pages.list_address import ListAddress

PAGE_ROWS: Final = 50
"""Rows on one page."""
_FILTERS: Final[Mapping[str, str]] = {"actor": "actor", "event": "event_id", "action": "action"}
"""Names in the URL, and the columns that they filter."""
PARAMETERS: Final = ("q", *_FILTERS, "sort", "page")
"""The parameters of this page's address."""
_SHOWN: Final = (
    "number",
    "at",
    "actor",
    "action",
    "eventId",
    "reason",
    "decision",
    "previous",
    "hash",
)
"""Fields that have a place of their own on the page; the others follow under their own names."""
_ACTIONS: Final[Mapping[str, str]] = {
    "approve": "approved",
    "approve_first": "approved as the first of two",
    "leave": "left until its time",
    "refused": "was refused",
    "take_over": "asked the next VM",
    "logged_in": "logged in",
    "logged_out": "logged out",
    "token_added": "made a token",
    "token_revoked": "revoked a token",
    "vm_enrolled": "enrolled a VM",
    "vm_revoked": "revoked a VM",
    "vm_retired": "retired a VM",
    "vm_accepted": "accepted the identity that a VM reports",
    "vm_forgotten": "removed all that a VM had sent",
    "all_vms_revoked": "revoked all VMs",
}
_REFUSALS: Final[Mapping[str, str]] = {
    **{str(why): reason.sentence for why, reason in REASONS.items()},
    "no_role": "no role was given to this name",
    "cross_site": "the request came from another site",
    "bad_token": "the token is not known, has ended, or was revoked",
}
_PATIENCE_SECONDS: Final = 2.0
_RECHECK_SECONDS: Final = 60.0
_REST: Final = 20
"""The length of the pause after a check, in times of the check's own length: checks take at most
one twentieth of the time, however long the audit is.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCheck:
    """The result of a check of the whole chain; `at` in seconds since 1970."""

    at: float
    head: Head
    wrong: str | None = None
    """What is wrong with the first wrong row."""


class Chain:
    """Checks the whole chain, at most once a minute, and only while the page is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._task: asyncio.Task[ChainCheck] | None = None
        self._found: ChainCheck | None = None
        self._next = 0.0

    async def checked(self, now: float) -> ChainCheck | None:
        """Return the newest result; None while the first check is running. Raises
        `DatabaseFailedError`.
        """
        if self._task is None and time.monotonic() >= self._next:
            self._task = asyncio.create_task(self._check_chain(now))
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_PATIENCE_SECONDS)
            if self._task.done():
                task = self._task
                self._task = None
                self._found = task.result()
        return self._found

    async def _check_chain(self, now: float) -> ChainCheck:
        begun = time.monotonic()
        try:
            return await asyncio.to_thread(_check, self._database, now)
        finally:
            ended = time.monotonic()
            self._next = ended + max(_RECHECK_SECONDS, _REST * (ended - begun))


def _check(database: Database, now: float) -> ChainCheck:
    head, fault = audit_log.check(database.reading)
    return ChainCheck(at=now, head=head, wrong=None if fault is None else fault.message)


def address_of(query: Mapping[str, str]) -> ListAddress:
    """Return the address of the page with this query."""
    return ListAddress(
        "/audit", query, names=("q", *_FILTERS), usual={"sort": "-at", "page": "1"}, sorts=SORTS
    )


def _query_of(address: ListAddress) -> WantedRows:
    """Return the address as a query of the database."""
    equal = {column: address[name] for name, column in _FILTERS.items() if address[name]}
    return WantedRows(q=address["q"], equal=equal, sort=address["sort"])


async def template_values(
    database: Database, chain: Chain, address: ListAddress, now: float
) -> dict[str, Any]:
    """Return the values of the template. Raises `DatabaseFailedError`."""
    actions, rows, count = await asyncio.to_thread(_read, database, address)
    try:
        state = await chain.checked(now)
        trouble = None
    except DatabaseFailedError as error:
        state = None
        trouble = str(error)
    return {
        "address": address,
        "actions": actions,
        "rows": rows,
        "count": count,
        "first": (address.page - 1) * PAGE_ROWS,
        "last": max(1, -(-count // PAGE_ROWS)),
        "chain": state,
        "chain_trouble": trouble,
        "action_label": action_label,
    }


def _read(database: Database, address: ListAddress) -> tuple[list[str], list[dict[str, Any]], int]:
    """Return all actions in the audit, the rows of a page as they are shown, and how many rows
    match.
    """
    with read_from(database.reading) as connection:
        found, count = audit_log.find_rows(
            connection, _query_of(address), limit=PAGE_ROWS, page=address.page
        )
        actions = audit.actions(connection)
        items = [as_json(row) for row in found]
        ids = {row["decision"] for row in items if row.get("decision")}
        decided = decisions_by_id(connection, ids)
    rows = [_row_values(row, decided.get(row.get("decision", ""))) for row in items]
    return actions, rows, count


def action_label(action: str) -> str:
    """Return an action in words."""
    return _ACTIONS.get(action) or action.replace("_", " ")


def _row_values(row: Mapping[str, Any], decision: Decision | None) -> dict[str, Any]:
    rest = {name: _text(value) for name, value in row.items() if name not in _SHOWN}
    reason = row.get("reason")
    is_refusal = row["action"] == "refused"
    return {
        "number": row["number"],
        "at": seconds_of(row["at"]),
        "actor": row["actor"],
        "action": row["action"],
        "event": row.get("eventId"),
        "heading": _heading(row),
        "reason": None if is_refusal else reason,
        "refusal": _REFUSALS.get(str(reason), reason) if is_refusal else None,
        "outcome": None if decision is None else _outcome(decision),
        "rest": rest,
    }


def _heading(row: Mapping[str, Any]) -> str | None:
    """Return a heading for the row's event, such as `Reboot of db-3`; None if the row has no names
    of VMs.
    """
    names = row.get("resources")
    if not isinstance(names, list) or not names:
        return None
    return labels.heading_of(row.get("eventType"), [str(name) for name in names])


def _outcome(decision: Decision) -> str:
    """Return the present state of the decision as a sentence."""
    if decision.outcome is not None:
        return outcome_text(decision.outcome, decision.outcome_reason)
    if decision.state == "second":
        return "It waits for a second person."
    return "It is under way." if decision.kind == "approve" else "It is left until its time."


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
