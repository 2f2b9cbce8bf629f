"""Searches for a VM or an event: by a part of a name, a pattern, or a tag."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, func

ESCAPE: Final = "\\"
"""Stands before a character that is meant literally in `pattern_of`."""
_TAG: Final = "tag="


def tag_of(q: str) -> str | None:
    """Return the tag of a search, `role:db` of `tag=role:db`, or None if it is not for a tag."""
    return q[len(_TAG) :].strip() if q.casefold().startswith(_TAG) else None


def is_pattern(q: str) -> bool:
    """Check whether a search is a pattern for whole names: `db-*`, `web-?`."""
    return "*" in q or "?" in q


def is_text(q: str) -> bool:
    """Check whether a search is neither a tag nor a pattern: a part of a name, or of something
    else.
    """
    return tag_of(q) is None and not is_pattern(q)


def pattern_of(q: str) -> str:
    """Return the pattern in the form of SQL's LIKE."""
    signs = {"*": "%", "?": "_", "%": ESCAPE + "%", "_": ESCAPE + "_", ESCAPE: ESCAPE * 2}
    return "".join(signs.get(sign, sign) for sign in q)


def has_tag(vm: Any, tag: str) -> ColumnElement[bool]:
    """Return the SQL for whether a VM has a tag, in any case: `role:db`, or `role` with
    any value.
    """
    name, colon, value = (part.strip().lower() for part in tag.partition(":"))
    text = f"{_quoted(name)}:{_quoted(value) if colon else ''}"
    found: ColumnElement[bool] = func.lower(vm.c.tags).contains(text, autoescape=True)
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
