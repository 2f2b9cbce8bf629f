"""The time of the simulation, its random choices, and the history that it writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

from support.documents.documents import NOW

BEGIN: Final = NOW.timestamp()

Choice = TypeVar("Choice")


class Violation(AssertionError):
    """What must never happen has happened."""


class Simulation:
    """One run: everything that differs between two runs comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = BEGIN
        self.lines: list[str] = []
        self.calm = False
        """Whether nothing goes wrong any more."""

    def log(self, text: str) -> None:
        """Add a line to the history."""
        self.lines.append(f"{self.elapsed(self.now):9.1f} {text}")

    def elapsed(self, at: float) -> float:
        """Return the seconds from the beginning of the simulation to a time."""
        return at - BEGIN

    def chance(self, probability: float) -> bool:
        """Decide whether something goes wrong."""
        return not self.calm and self.random.random() < probability

    def pick(self, among: Sequence[Choice]) -> Choice:
        """Choose one of these."""
        return self.random.choice(among)

    def trouble(self, among: Sequence[Choice], usual: Choice) -> Choice:
        """Choose one of these; when all is calm, the usual one."""
        return usual if self.calm else self.random.choice(among)

    def violation(self, text: str) -> Violation:
        """Add a violation to the history, and return the error to raise."""
        self.log(f"VIOLATION {text}")
        return Violation(text)
