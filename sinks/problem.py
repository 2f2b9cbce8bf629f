"""What went wrong, and what to do about it, kept apart until a person reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A fact and its remedy, a clause each; as text, one line: `fact; remedy`."""

    what: str
    remedy: str | None = None

    def at(self, where: object) -> Problem:
        """The same problem, with the place in front of it."""
        return Problem(f"{where}: {self.what}", self.remedy)

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what
