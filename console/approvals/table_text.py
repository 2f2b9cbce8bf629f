"""The descriptions of a table's conditions and actions, for the documentation."""

from __future__ import annotations

from collections.abc import Callable


def description_of(function: Callable[..., object]) -> str:
    """Return what a condition or an action is: the first line of its docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]
