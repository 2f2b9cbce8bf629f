"""The chain of hashes over the audit's rows: makes a row, and finds faults in rows.

Values in, values out. A chain shows every change but one: whoever owns the database can write all
of it again. A head that was kept elsewhere shows that too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from console.db.audit import AuditRow
from wire.moment import rfc3339
from wire.strictjson import canonical_json

AuditValue = str | int | list[str] | None
"""The types of values in a row; no fractions, which JSON writers spell in different ways."""
_MAX_CHARACTERS: Final = 2000
"""The limit of a text, in characters; a refused text may have any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of a chain: the number and the hash of its last row."""

    number: int
    hash: str


START: Final = Head(number=0, hash="0" * 64)
"""The head before the first row, whose number is 1 and whose `previous` is 64 zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFault:
    """A fault at a row, in a sentence."""

    number: int
    message: str


def sealed(
    previous: Head,
    *,
    at: float,
    actor: str,
    action: str,
    event_id: str | None,
    jti: str | None,
    details: Mapping[str, AuditValue],
) -> AuditRow:
    """Return the row that follows `previous`; `at` in seconds since 1970, details by their JSON
    names. Characters that a database or UTF-8 cannot store become U+FFFD; long texts are cut.
    """
    number = previous.number + 1
    texts = {"actor": actor, "action": action, "eventId": event_id, "jti": jti}
    whole: dict[str, Any] = {**details, **texts, "previous": previous.hash}
    kept = {name: _storable(value) for name, value in whole.items() if value is not None}
    kept |= {"number": number, "at": _moment(at)}
    body = canonical_json(kept)
    return AuditRow(
        number=number,
        at=at,
        actor=kept["actor"],
        action=kept["action"],
        event_id=kept.get("eventId"),
        jti=kept.get("jti"),
        body=body.decode(),
        hash=sha256(body).hexdigest(),
    )


def as_json(row: AuditRow) -> dict[str, Any]:
    """Return the row as the API shows it, with its hash; for a row that was changed, only the
    columns.
    """
    if any(_faults(row)):
        known = {name: str(value) for name, value in _columns(row).items() if value is not None}
        return known | {"number": row.number, "hash": str(row.hash)}
    return _content(row) | {"hash": row.hash}


def head_of(row: AuditRow | None) -> Head:
    """Return the end of a chain with this last row; None: the chain is empty."""
    return START if row is None else Head(number=row.number, hash=row.hash)


def verify(
    rows: Iterable[AuditRow], *, start: Head = START, known: Iterable[Head] = ()
) -> Iterator[ChainFault]:
    """Yield the faults of rows that are in the order of their numbers. `start` is the row before
    the first of them; `known` are heads that were kept elsewhere.
    """
    heads: dict[int, set[str]] = {}
    for head in known:
        heads.setdefault(head.number, set()).add(head.hash)
    before = start
    for row in rows:
        yield from _faults(row, before)
        if heads.pop(row.number, {row.hash}) != {row.hash}:
            message = (
                f"row {row.number} is not the one whose hash was kept: the audit was rewritten"
            )
            yield ChainFault(number=row.number, message=message)
        before = head_of(row) if isinstance(row.number, int) else before
    for number in sorted(heads):
        if number > before.number:
            message = f"{_missing_rows(before.number + 1, number)} missing at the end"
            yield ChainFault(number=before.number + 1, message=message)


def _faults(row: AuditRow, before: Head | None = None) -> list[ChainFault]:
    """Return the faults of a row, and of its place if the row before it is given."""
    try:
        misplaced = [] if before is None else list(_place_faults(row, before))
        return [*misplaced, *_content_faults(row)]
    except (AttributeError, TypeError):  # SQLite takes a value of any type
        number = row.number if before is None else before.number + 1
        return [
            ChainFault(
                number=number, message=f"row {number} is changed: a column has no such value"
            )
        ]


def _place_faults(row: AuditRow, before: Head) -> Iterator[ChainFault]:
    """Yield a fault if a row does not follow the one before it."""
    expected = before.number + 1
    if row.number > expected:
        yield ChainFault(
            number=expected, message=f"{_missing_rows(expected, row.number - 1)} missing"
        )
    elif row.number < expected:
        yield ChainFault(number=row.number, message=f"row {row.number} is out of order")
    elif _content(row).get("previous") != before.hash:
        message = (
            f"row {row.number} does not follow row {before.number}: "
            "its `previous` is not the hash of that row"
        )
        yield ChainFault(number=row.number, message=message)


def _missing_rows(first: int, last: int) -> str:
    return f"row {last} is" if first == last else f"rows {first} to {last} are"


def _content_faults(row: AuditRow) -> Iterator[ChainFault]:
    """Yield a fault if a row is not the one that was hashed."""
    if sha256(row.body.encode(errors="replace")).hexdigest() != row.hash:
        yield ChainFault(
            number=row.number, message=f"row {row.number} is changed: its hash differs"
        )
        return
    content = _content(row)
    for name, value in _columns(row).items():
        if content.get(name) != value:
            message = f"row {row.number} is changed: its column for {name} is not what was hashed"
            yield ChainFault(number=row.number, message=message)


def _columns(row: AuditRow) -> dict[str, Any]:
    try:
        at: object = _moment(row.at)
    except (TypeError, ValueError, OverflowError, OSError):
        at = row.at
    return {
        "number": row.number,
        "at": at,
        "actor": row.actor,
        "action": row.action,
        "eventId": row.event_id,
        "jti": row.jti,
    }


def _content(row: AuditRow) -> dict[str, Any]:
    try:
        content = json.loads(row.body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _moment(at: float) -> str:
    return rfc3339(datetime.fromtimestamp(at, UTC))


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        clean = value.encode(errors="replace").decode()[:_MAX_CHARACTERS]
        return clean.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, list):
        return [_storable(each) for each in value]
    return value
