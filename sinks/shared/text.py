"""Makes text from outside harmless: `escaped` for lines of the bridge (JSON keeps its meaning),
`visible` for pages and notices of the console, and `plain` for tables on a terminal. Lists names.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_SPACE: Final = re.compile(r"\s+")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """Return the text in one line, with every invisible character written out. Control characters,
    and characters that change the direction of writing, could show what is not there.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(sign):04x}" if unicodedata.category(sign) in _UNSEEN else sign
        for sign in _SPACE.sub(" ", text)
    )


def escaped(text: str) -> str:
    """Return the text with everything that a terminal could obey as JSON escapes; valid JSON keeps
    its meaning.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def plain(value: object) -> str:
    """Return a text for a terminal, without characters that a terminal obeys."""
    text = "-" if value is None else str(value)
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
