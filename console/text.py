"""Texts from outside, made harmless for every place that shows plain text."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_SPACE: Final = re.compile(r"\s+")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text in one line, with every sign that cannot be seen written out.

    Control signs and signs that turn the direction of writing could show what is not there.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(sign):04x}" if unicodedata.category(sign) in _UNSEEN else sign
        for sign in _SPACE.sub(" ", text)
    )
