"""The faults by the names that a command line can say: `NAME` or `NAME=ARGUMENT`."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from bridge.simulator import faults
from bridge.simulator.faults import Fault

_PLAIN: Final[dict[str, Callable[[], Fault]]] = {
    "401": lambda: faults.Status(401),
    "404": lambda: faults.Status(404),
    "410": lambda: faults.Status(410),
    "429": lambda: faults.Status(429, retry_after=2),
    "500": lambda: faults.Status(500),
    "503": lambda: faults.Status(503),
    "cut": faults.CutJson,
    "drip": faults.DripBody,
    "drip-headers": faults.DripHeaders,
    "empty": faults.EmptyBody,
    "endless": faults.Endless,
    "html": faults.Html,
    "huge": faults.Huge,
    "no-events": faults.NoEvents,
    "refused": faults.Refused,
    "reset": faults.Reset,
    "silence": faults.Silence,
    "slow": faults.Slow,
    "truncated": faults.Truncated,
}
_WITH_ARGUMENT: Final[dict[str, Callable[[float], Fault]]] = {
    "429": lambda seconds: faults.Status(429, retry_after=int(seconds)),
    "drip": faults.DripBody,
    "drip-headers": faults.DripHeaders,
    "endless": faults.Endless,
    "huge": lambda mebibytes: faults.Huge(int(mebibytes)),
    "refused": faults.Refused,
    "silence": faults.Silence,
    "slow": faults.Slow,
}

FAULT_NAMES: Final = tuple(sorted(_PLAIN))


def parse_fault(text: str) -> Fault:
    """The fault of `NAME` or `NAME=ARGUMENT`; the argument is seconds, or MiB for `huge`.

    Raises `ValueError` that says what can be written instead.
    """
    name, equals, argument = text.partition("=")
    if name not in _PLAIN:
        near = get_close_matches(name, FAULT_NAMES, n=3) or FAULT_NAMES
        raise ValueError(f"there is no fault {name!r}; try {', '.join(near)}")
    if not equals:
        return _PLAIN[name]()
    if name not in _WITH_ARGUMENT:
        raise ValueError(f"the fault {name!r} takes no argument")
    try:
        number = float(argument)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:  # noqa: PLR2004  # an hour: nobody waits longer by hand
        raise ValueError(f"{argument!r} is not a number between 0 and 3600, as in {name}=5")
    return _WITH_ARGUMENT[name](number)
