"""What a named VM says outweighs others: who is named by its own report, and since when a VM is
known, are columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from alembic import op

from console.fleet.values import folded

revision = "0011"
down_revision = "0010"

_AT_ONCE = 1000
Json = dict[str, Any]


def upgrade() -> None:
    """Everything that was there stays; what is new is filled from it."""
    op.add_column(
        "vm", sa.Column("first_at", sa.Float(precision=53), nullable=False, server_default="0")
    )
    op.execute("ALTER TABLE observation RENAME COLUMN affects TO is_own")
    op.add_column("observation", sa.Column("named", sa.Text(), nullable=False, server_default=""))
    op.add_column("observation", sa.Column("told", sa.Text(), nullable=True))
    op.add_column(
        "observation", sa.Column("is_weak", sa.Integer(), nullable=False, server_default="0")
    )
    for rows in _rows(
        "SELECT observation.event_id, observation.vm_id, observation.facts, observation.sequence, "
        "vm.name FROM observation LEFT JOIN vm ON vm.vm_id = observation.vm_id"
    ):
        op.get_bind().execute(
            sa.text(
                "UPDATE observation SET is_own = :is_own, named = :named, told = :told, "
                "is_weak = :is_weak WHERE event_id = :event_id AND vm_id = :vm_id"
            ),
            [_of_observation(row) for row in rows],
        )


def _of_observation(row: Any) -> Json:
    facts: Json = json.loads(row.facts)
    names = {folded(str(name)) for name in facts["event"]["resources"]}
    is_own = bool(facts["affects_this_vm"]) and row.name is not None and folded(row.name) in names
    is_unproven = str(facts["fingerprint"]).startswith("unproven:")
    told = f"{facts['impact']}\n{facts['event']['description']}"
    return {
        "event_id": row.event_id,
        "vm_id": row.vm_id,
        "is_own": int(is_own),
        "named": _hash(
            "\n".join(sorted(folded(str(name)) for name in facts["event"]["resources"]))
        ),
        "told": _hash(told) if row.sequence else None,
        "is_weak": int(bool(facts.get("goes_on")) or is_unproven),
    }


def _hash(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def _rows(query: str) -> Iterator[Any]:
    """The rows of a query, a thousand at a time; all are read before the first is changed."""
    found = op.get_bind().execute(sa.text(query)).all()
    for start in range(0, len(found), _AT_ONCE):
        yield found[start : start + _AT_ONCE]
