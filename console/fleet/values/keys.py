"""Keys of events, and names in the form in which they are compared or sorted."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

_MAX_KEY_BYTES: Final = 400
"""The limit in bytes of a text that shares an index with others, such as an event's id: PostgreSQL
takes 2,700 in all.
"""
_MAX_SORTED_CHARACTERS: Final = 300
"""How many characters of a name count in the order of lists."""
_MAX_DIGITS: Final = 18
_DIGITS: Final = re.compile(rf"[0-9]{{1,{_MAX_DIGITS}}}")


class EventKey(NamedTuple):
    """Identifies an event: Azure's id, and the scope within which it is unique."""

    event_id: str
    scope: str


def name_key(name: str) -> str:
    """Return the key of a name: names with one key are the same name, as case does not count."""
    return as_key(name.casefold())


def sort_name(name: str) -> str:
    """Return a name in the form by which lists are sorted: web-2 comes before web-10."""
    return _DIGITS.sub(lambda found: found[0].zfill(_MAX_DIGITS), name.casefold())[
        :_MAX_SORTED_CHARACTERS
    ]


def as_key(text: str) -> str:
    """Return a text for an index. A text that is too long is cut, and its hash is appended."""
    if len(text) <= _MAX_KEY_BYTES // 4:  # a sign has four bytes at most
        return text
    whole = text.encode(errors="replace")
    if len(whole) <= _MAX_KEY_BYTES:
        return text
    return f"{whole[:_MAX_KEY_BYTES].decode(errors='ignore')}#{sha256(whole).hexdigest()}"


def text_hash(text: str) -> str:
    """Return the hash of a text, in hexadecimal digits."""
    return sha256(text.encode(errors="replace")).hexdigest()
