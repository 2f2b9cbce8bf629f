"""What the benchmarks share: a figure with its limit, and how numbers are written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the page: what was measured, against what, and what it is held to."""

    what: str
    ours: str
    peer: str = ""
    """The same of whatever it is compared with, and what that is."""
    ratio: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    why: str = ""
    """What keeps the ratio from its limit; shown only where it does."""

    @property
    def is_met(self) -> bool | None:
        """Whether the ratio keeps its limit; None where there is none."""
        if self.ratio is None:
            return None
        if self.at_most is not None:
            return round(self.ratio, 2) <= self.at_most
        if self.at_least is not None:
            return round(self.ratio, 2) >= self.at_least
        return None

    @property
    def limit(self) -> str:
        """The limit in words; empty for none."""
        if self.at_most is not None:
            return f"at most {self.at_most:g} \u00d7"
        return "" if self.at_least is None else f"at least {self.at_least:g} \u00d7"


def ms(value: float) -> str:
    """Milliseconds."""
    return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """A Markdown list."""
    return "".join(f"- {line}\n" for line in lines)


def bars(counts: Sequence[int]) -> str:
    """A histogram in text: a line per second, with its number."""
    most = max(counts)
    return "".join(
        f"{second:>3} s {'#' * round(40 * count / most):<40} {count}\n"
        for second, count in enumerate(counts)
    )
