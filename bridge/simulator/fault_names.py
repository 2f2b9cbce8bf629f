"""Reads faults from a command line: `NAME` or `NAME=ARGUMENT`."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from bridge.simulator import faults
from bridge.simulator.faults import Fault

_FAULTS: Final[dict[str, Callable[..., Fault]]] = {
    "401": lambda: faults.StatusFault(401),
    "404": lambda: faults.StatusFault(404),
    "410": lambda: faults.StatusFault(410),
    "429": lambda seconds=2: faults.StatusFault(429, retry_after=int(seconds)),
    "500": lambda: faults.StatusFault(500),
    "503": lambda: faults.StatusFault(503),
    "cut": faults.CutJson,
    "drip": faults.DripBody,
    "drip-headers": faults.DripHeaders,
    "empty": faults.EmptyBody,
    "endless": faults.Endless,
    "html": faults.Html,
    "huge": lambda mebibytes=10: faults.Huge(int(mebibytes)),
    "no-events": faults.NoEvents,
    "refused": faults.RefusedFault,
    "reset": faults.ResetFault,
    "silence": faults.Silence,
    "slow": faults.Slow,
    "truncated": faults.Truncated,
}
_ARGUMENT: Final = {"429", "drip", "drip-headers", "endless", "huge", "refused", "silence", "slow"}
FAULT_NAMES: Final = tuple(sorted(_FAULTS))


def parse_fault(text: str) -> Fault:
    """Return the fault of `NAME` or `NAME=ARGUMENT` (seconds, or MiB for `huge`). Raises
    `ValueError`.
    """
    name, equals, argument = text.partition("=")
    if name not in _FAULTS:
        near = get_close_matches(name, FAULT_NAMES, n=3) or FAULT_NAMES
        raise ValueError(f"there is no fault {name!r}; try {', '.join(near)}")
    if not equals:
        return _FAULTS[name]()
    if name not in _ARGUMENT:
        raise ValueError(f"the fault {name!r} takes no argument")
    try:
        number = float(argument)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:  # noqa: PLR2004  # an hour
        raise ValueError(f"{argument!r} is not a number between 0 and 3600, as in {name}=5")
    return _FAULTS[name](number)
