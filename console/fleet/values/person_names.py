"""Names of persons, as people read them."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSEEN: Final = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Categories of Unicode whose characters are invisible."""
_BLANK: Final = frozenset(
    [
        *("\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u2800", "\u3164", "\uffa0"),
        *map(chr, range(0x180B, 0x1810)),
        *map(chr, range(0xFE00, 0xFE10)),
        *map(chr, range(0xE0100, 0xE01F0)),
    ]
)
"""Characters of other categories that are invisible too: joiners, fillers, variation selectors."""


def is_same_person(one: str, other: str) -> bool:
    """Check whether people read two names as the same."""
    return _as_read(one) == _as_read(other)


def _as_read(name: str) -> str:
    """Return a name as people read it: in NFKC, case folded, without invisible characters and
    without extra spaces.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = (s for s in plain if s not in _BLANK and unicodedata.category(s) not in _UNSEEN)
    return " ".join("".join(seen).split())
