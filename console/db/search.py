"""The search for a VM or an event: a part of a name, a pattern, or a tag."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, func

ESCAPE: Final = "\\"
"""Before a sign that stands for itself in `pattern_of`."""
_TAG: Final = "tag="


def tag_of(q: str) -> str | None:
    """The tag that is searched for, `role:db` of `tag=role:db`; None if it is no tag."""
    return q[len(_TAG) :].strip() if q.casefold().startswith(_TAG) else None


def is_pattern(q: str) -> bool:
    """Whether it stands for whole names: `db-*`, `web-?`."""
    return "*" in q or "?" in q


def is_text(q: str) -> bool:
    """Whether it is neither a tag nor a pattern: a part of a name, or of something else."""
    return tag_of(q) is None and not is_pattern(q)


def pattern_of(q: str) -> str:
    """The pattern as SQL's LIKE has it."""
    signs = {"*": "%", "?": "_", "%": ESCAPE + "%", "_": ESCAPE + "_", ESCAPE: ESCAPE * 2}
    return "".join(signs.get(sign, sign) for sign in q)


def has_tag(vm: Any, tag: str) -> ColumnElement[bool]:
    """Whether a VM has a tag, in any case: `role:db`, or `role` with whatever value."""
    name, colon, value = (part.strip().lower() for part in tag.partition(":"))
    text = f"{_quoted(name)}:{_quoted(value) if colon else ''}"
    found: ColumnElement[bool] = func.lower(vm.c.tags).contains(text, autoescape=True)
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
