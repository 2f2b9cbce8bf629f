"""The entries of a document as text, so that unchanged ones are not read again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.strictjson import JsonError, has_surrogates, load_json, load_object

_LIST: Final = re.compile(r'"Events"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
_SEPARATOR: Final = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")


class Entries(NamedTuple):
    """A document's text, where each entry begins and ends in it, and what was read from each."""

    values: Sequence[Any] = ()
    text: str = ""
    starts: Sequence[int] = ()
    ends: Sequence[int] = ()


def split(
    body: bytes, before: Entries, read: Callable[[Mapping[str, Any]], object]
) -> tuple[Mapping[str, Any], Entries] | None:
    """The document without its entries, and the entries, unchanged ones as in `before`. None if the
    body does not have the usual shape, which `read` is for.
    """
    try:
        text = body.decode("utf-8-sig")
        found = _LIST.search(text)
        head = text[: found.start()] if found else ""
        # The list must belong to the outermost object.
        usual = head.count("{") == 1 and "[" not in head and "}" not in head
        if found is None or not usual:
            return None
        entries, end = _entries(text, found.end(), before, read)
        rest = f"{text[: found.end()]}{text[end:]}"
        return None if has_surrogates(rest) else (load_json(rest.encode()), entries)
    except ValueError:  # what is wrong is found again, and named, where it is read as a whole
        return None


def _entries(
    text: str, place: int, before: Entries, read: Callable[[Mapping[str, Any]], object]
) -> tuple[Entries, int]:
    """The entries from `place`, and where the list ends. Raises `ValueError` if it is not one."""
    values, starts, ends = list[Any](), list[int](), list[int]()
    known, comma = 0, ""
    while comma or (not values and not text.startswith("]", place)):
        # The next ones of before; or those behind the next, if that was changed or has gone.
        first, last = known, _same(text, place, before, known)
        if last == first:
            first, last = known + 1, _same(text, place, before, known + 1)
        if last > first:
            shift, known = place - before.starts[first], last
            values += before.values[first:last]
            starts += [each + shift for each in before.starts[first:last]]
            ends += [each + shift for each in before.ends[first:last]]
        else:
            loaded, end = load_object(text, place)
            if has_surrogates(text[place:end]):
                raise JsonError("half a surrogate pair")
            values.append(read(loaded))
            starts.append(place)
            ends.append(end)
        place, comma = ends[-1], ""
        if separator := _SEPARATOR.match(text, place):
            place, comma = separator.end(), separator[1]
    if not text.startswith("]", place):
        raise JsonError("two entries without a comma between them")
    return Entries(values, text, starts, ends), place


def _same(text: str, place: int, before: Entries, first: int) -> int:
    """Up to which entry of before those from `first` on are the same text here."""
    last, step, count = first, 1, len(before.starts)
    while step and last < count:
        begin = before.ends[last - 1] if last > first else before.starts[first]
        end = before.ends[min(last + step, count) - 1]
        if text.startswith(before.text[begin:end], place + begin - before.starts[first]):
            last, step = min(last + step, count), step * 2
        else:
            step //= 2
    return last
