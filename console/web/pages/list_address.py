"""The address of a page with a list: it says which rows are shown, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlencode

MAX_CHARACTERS: Final = 300
"""The limit of a parameter."""
_MAX_DIGITS: Final = 6
"""The most digits of a page number."""


class ListAddress:
    """The parameters of an address. A value that is left out is the usual one."""

    def __init__(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        names: Collection[str],
        usual: Mapping[str, str],
        sorts: Collection[str],
        descends_first: bool = False,
    ) -> None:
        """`names` are the parameters of the page besides `sort` and `page`; `sorts` the columns by
        which it can be sorted. `descends_first`: the first press on a column sorts downwards.
        """
        self._path = path
        self._usual = usual
        self._descends_first = descends_first
        found = {
            name: query.get(name, "").replace("\0", "").strip()[:MAX_CHARACTERS]
            for name in (*names, "sort")
        }
        if found["sort"].removeprefix("-") not in sorts:
            found["sort"] = ""
        self.given: Final = {
            name: value for name, value in found.items() if value not in ("", usual.get(name))
        }
        """The parameters that have another value than the usual one."""
        self.page: Final = page_number(query.get("page", ""))

    def __getitem__(self, name: str) -> str:
        return self.given.get(name) or self._usual.get(name, "")

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set, without the order."""
        return {name: value for name, value in self.given.items() if name != "sort"}

    @property
    def column(self) -> str:
        """The column by which the list is sorted."""
        return self["sort"].removeprefix("-")

    @property
    def descends(self) -> bool:
        """Whether it is sorted downwards."""
        return self["sort"].startswith("-")

    def url(self, **changed: object) -> str:
        """Return this address with some changes; a changed address begins at page 1."""
        chosen = {**self.given, **{name: str(value) for name, value in changed.items()}}
        query = {
            name: value
            for name, value in chosen.items()
            if value not in ("", self._usual.get(name))
        }
        return f"{self._path}?{urlencode(query)}" if query else self._path

    def sorted_by(self, column: str) -> str:
        """Return the address that sorts by a column, or in the other direction if the page is
        sorted by it already.
        """
        first = column
        second = f"-{column}"
        if self._descends_first:
            first, second = second, first
        return self.url(sort=second if self["sort"] == first else first)

    def order(self, column: str) -> str | None:
        """Return the direction in which a column is sorted, in ARIA's words."""
        if column != self.column:
            return None
        return "descending" if self.descends else "ascending"


def page_number(text: str) -> int:
    """Return the page number in an address; 1 if it is not a number."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return max(1, int(text)) if is_number else 1
