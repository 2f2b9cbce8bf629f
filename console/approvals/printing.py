"""A table of conditions as text, for a reader who prints it."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def words_of(function: Callable[..., object]) -> str:
    """What a condition or an action is: the first line of its docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]


def table_text(rows: Sequence[tuple[str, str, str]]) -> str:
    """Three columns, a line each."""
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{a:{first}}  {b:{second}}  {c}" for a, b, c in rows)
