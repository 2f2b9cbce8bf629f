"""The code blocks of a page, so that tests run what people type and the page cannot drift.

A block belongs to the heading above it. A block whose first line is a comment with the name
of a file and nothing else, such as `# /etc/seb/seb.env`, is the text of that file.

A comment before a block says which test runs it, `<!-- run by tests/ground/test_x.py -->`, or why
none does, `<!-- not run: needs Windows -->`. The same for all blocks of one language of a page is a
comment at the page's top: `<!-- sh: run by tests/ground/test_x.py -->`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(
    r"(?:^<!-- ((?:run by|not run:)[^\n]*) -->\n)?^```(\w*)[^\n]*\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_OF_THE_PAGE = re.compile(r"^<!-- (\w+): ((?:run by|not run:)[^\n]*) -->$", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PATH = re.compile(r"(?:#|//|<!--) (\S*[./]\S*|[A-Z]:\\[^\n]+?)(?: -->)?\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code."""

    language: str
    heading: str
    text: str
    mark: str
    """Which test runs it, or why none does; empty if the page does not say."""

    @property
    def path(self) -> str | None:
        """Which file it is the text of; None if it is not a file."""
        found = _PATH.match(self.text)
        return found[1] if found else None


def blocks(name: str, language: str | None = None) -> list[Block]:
    """The blocks of a page of this repository, in order; of one language if it is given."""
    text = (ROOT / name).read_text(encoding="utf-8")
    of_the_page = dict(_OF_THE_PAGE.findall(text))
    heading, found, end = "", [], 0
    for fence in _FENCE.finditer(text):
        titles = _HEADING.findall(text, end, fence.start())
        heading = titles[-1] if titles else heading
        mark = fence[1] or of_the_page.get(fence[2], "")
        found.append(Block(fence[2], heading, fence[3], mark))
        end = fence.end()
    return [each for each in found if language in (None, each.language)]


def files(name: str) -> dict[str, str]:
    """The text of every file that a page gives, by its path."""
    return {each.path: each.text for each in blocks(name) if each.path}


class PageBlocks:
    """The shell blocks of a page, handed out in order, so that a test can see what was left."""

    def __init__(self, name: str, *, by: str | None = None) -> None:
        """All of them, or those that the page says are run `by` a test."""
        self._name = name
        self._left = [
            each
            for each in blocks(name, "sh")
            if each.path is None and by in (None, each.mark.removeprefix("run by "))
        ]

    def all(self, heading: str) -> list[Block]:
        """Every shell block below a heading."""
        return [each for each in blocks(self._name, "sh") if each.heading == heading]

    def take(self, heading: str) -> str:
        """The next block below a heading that has not been taken. Raises `AssertionError`."""
        found = next((each for each in self._left if each.heading == heading), None)
        assert found is not None, f"{self._name}: no further block below {heading!r}"
        self._left.remove(found)
        return found.text

    def file(self, path: str) -> str:
        """The text of a file that the page gives."""
        return files(self._name)[path]

    def left(self) -> list[str]:
        """The blocks that nobody has taken."""
        return [each.text for each in self._left]
