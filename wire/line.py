"""Text that is shown on one line, such as the name of a key or a claim of a command."""

from __future__ import annotations

from typing import TypeGuard


def is_line(value: object, *, max_length: int) -> TypeGuard[str]:
    """Check whether a value is text, not empty, not too long, and printable as a whole."""
    return isinstance(value, str) and 0 < len(value) <= max_length and value.isprintable()
