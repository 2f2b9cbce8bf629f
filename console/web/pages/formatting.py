"""Texts from outside and times, as markup: nothing that a record says can change the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from sinks.shared.text import visible

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_EXACT_BELOW: Final = 10.0
"""Seconds; a longer time is shown without decimals."""


def outside(value: object) -> Markup:
    """Return a text from outside; its writing direction does not affect the words around it."""
    return Markup("<bdi>{}</bdi>").format(visible(str(value)))


def coded(value: str) -> Markup:
    """Return a text from outside in which parts between backticks are shown as code."""
    parts = visible(value).split("`")
    if len(parts) % 2 == 0:
        return outside(value)
    marked = (
        Markup("<code>{}</code>").format(part) if number % 2 else Markup("{}").format(part)
        for number, part in enumerate(parts)
    )
    return Markup("<bdi>{}</bdi>").format(Markup("").join(marked))


def shown(value: object) -> object:
    """Return the value that a template prints: in plain text, invisible characters are written
    out.
    """
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: `1 VM`, `2 VMs`, `10,000 VMs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a length of time in words: `4.8 s`, `28 s`, `15 min`, `3 h 12 min`, `6 d 4 h`."""
    if seconds < _EXACT_BELOW and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = int(seconds + 0.5)
    for size, unit, rest_size, rest_unit in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // rest_size
            return f"{whole // size} {unit}" + (f" {rest} {rest_unit}" if rest else "")
    return f"{whole} s"


def ago_text(seconds: float) -> str:
    """Return how long ago something was; the page's script says the same while time passes."""
    if seconds < 2:  # noqa: PLR2004
        return "just now"
    if seconds < MINUTE:
        return f"{int(seconds)} s ago"
    if seconds < HOUR:
        return f"{int(seconds // MINUTE)} min ago"
    if seconds < DAY:
        return f"{int(seconds // HOUR)} h {int(seconds % HOUR // MINUTE)} min ago"
    return f"{int(seconds // DAY)} d {int(seconds % DAY // HOUR)} h ago"


def left_text(seconds: float) -> str:
    """Return the time that is left as a clock: `14:32`, `5:01:01`, `6 d 04:12`; words if no time is
    left.
    """
    if seconds <= 0:
        return "may start any second"
    whole = int(seconds)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if whole >= DAY:
        days, hour = divmod(hours, 24)
        return f"{days} d {hour:02}:{minute:02}"
    if whole >= HOUR:
        return f"{hours}:{minute:02}:{second:02}"
    return f"{minute:02}:{second:02}"


def _utc(at: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def clock(at: float | None, now: float) -> Markup:
    """Return a time in UTC as markup, with its date unless that is today; the script offers local
    time.
    """
    moment = None if at is None else _utc(at)
    if moment is None:
        return Markup("unknown")
    today = _utc(now)
    text = f"{moment:%H:%M:%S} UTC"
    if today is None or moment.date() != today.date():
        text = f"{moment:%Y-%m-%d} {text}"
    return Markup('<time class="clock" datetime="{}">{}</time>').format(_iso(moment), text)


def hour_and_minute(at: float) -> str:
    """Return a time in UTC without its date and seconds: `14:32`."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M}"


def ago(at: float | None, now: float) -> Markup:
    """Return as markup how long ago a time was; the script keeps it up to date."""
    moment = None if at is None else _utc(at)
    if at is None or moment is None:
        return Markup("never")
    text = ago_text(now - at)
    return Markup('<time data-tick="ago" datetime="{}">{}</time>').format(_iso(moment), text)


def left(at: float | None, now: float) -> Markup:
    """Return a countdown as markup, which the script keeps up to date."""
    moment = None if at is None else _utc(at)
    if at is None or moment is None:
        return Markup("no time given")
    frame = '<time data-tick="left" data-over datetime="{}">{}</time>'
    if at > now:
        frame = frame.replace(" data-over", "")
    return Markup(frame).format(_iso(moment), left_text(at - now))  # noqa: S704  # a constant


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
