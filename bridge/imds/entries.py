"""The entries of a document as text, so that one that has not changed is not read again.

IMDS sends the whole document whenever anything in it changes. Values in, values out: whatever does
not have the usual shape is left to the caller, who reads it as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bridge.strictjson import JsonError, load_json, load_object

Texts = Sequence[tuple[str, Any]]
"""The entries in their order: the text of each, and the value that was made of it."""

_LIST: Final = re.compile(r'"Events"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
_SEPARATOR: Final = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")

_NONE: Final = ("\0", None)
"""Stands behind the last entry of before: no entry begins with it."""


def split(
    body: bytes, before: Texts, read: Callable[[Mapping[str, Any]], object]
) -> tuple[Mapping[str, Any], Texts] | None:
    """The document without its entries, and the entries: one whose text is the same as `before`
    keeps the value of then; `read` makes the others.

    None if the body does not have the usual shape, is not strict JSON, or has a half surrogate.
    """
    try:
        text = body.decode("utf-8-sig")
        found = _LIST.search(text)
        if found is None or "\\ud" in text.lower() or not _is_top_level(text[: found.start()]):
            return None
        texts, end = _entries(text, found.end(), before, read)
        return load_json(f"{text[: found.end()]}{text[end:]}".encode()), texts
    except ValueError:  # what is wrong is found again, and named, where it is read as a whole
        return None


def _is_top_level(head: str) -> bool:
    """Whether what follows this beginning of a document belongs to its outermost object."""
    return head.count("{") == 1 and "[" not in head and "}" not in head


def _entries(
    text: str, start: int, before: Texts, read: Callable[[Mapping[str, Any]], object]
) -> tuple[list[tuple[str, Any]], int]:
    """The entries that begin at `start`, and where the list's closing bracket is.

    Raises `ValueError` if this is not a list of objects.
    """
    texts: list[tuple[str, Any]] = []
    place, known, comma = start, 0, ""
    known_texts = [*before, _NONE, _NONE]
    while comma or (not texts and not text.startswith("]", place)):
        # The next one of before; or the one behind it, if that was changed or has gone.
        if text.startswith(known_texts[known][0], place):
            entry, known = known_texts[known], known + 1
        elif text.startswith(known_texts[known + 1][0], place):
            entry, known = known_texts[known + 1], known + 2
        else:
            loaded, end = load_object(text, place)
            entry = (text[place:end], read(loaded))
        texts.append(entry)
        place += len(entry[0])
        comma = ""
        if text.startswith(",{", place):  # the usual case, without a match object
            place, comma = place + 1, ","
        elif separator := _SEPARATOR.match(text, place):
            place, comma = separator.end(), separator[1]
    if not text.startswith("]", place):
        raise JsonError("two entries without a comma between them")
    return texts, place
