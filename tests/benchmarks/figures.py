"""What the benchmarks share: a figure with its limit, and how numbers are written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What a user would feel if it were exceeded, in the unit of what was measured."""

    measured: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the measured value keeps it, as far as the page shows digits."""
        found = round(self.measured, 2)
        return (self.at_most is None or found <= self.at_most) and (
            self.at_least is None or found >= self.at_least
        )

    def __str__(self) -> str:
        """As the page shows it."""
        if self.at_most is not None:
            return f"at most {self.at_most:g} {self.unit}"
        return f"at least {self.at_least:g} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the page: what was measured, what it is compared with, and its limit."""

    what: str
    ours: str
    peer: str = ""
    """The same of whatever it is compared with, and what that is."""
    ratio: float | None = None
    """Ours against the peer's: a comparison."""
    limit: Limit | None = None
    why: str = ""
    """The reason if the limit is not met; shown only then."""

    @property
    def is_met(self) -> bool | None:
        """Whether the limit is met; None without a limit."""
        return None if self.limit is None else self.limit.is_met


def growth(  # a line of the page has so many columns
    *, what: str, ours: str, peer: str, ratio: float, at_most: float, why: str
) -> Figure:
    """A figure whose limit is its ratio: the large case against the small one."""
    limit = Limit(measured=ratio, unit="\u00d7", at_most=at_most)
    return Figure(what=what, ours=ours, peer=peer, ratio=ratio, limit=limit, why=why)


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
