"""What consoles need for 100,000 and for a million VMs, reckoned from what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

SIZES: Final = (100_000, 1_000_000)
HEARTBEAT_SECONDS: Final = 60
_PART: Final = 0.5
"""Of what a console can take in that its fleet may use: after an absence it has to catch up."""


def estimate(found: Any) -> Iterator[str]:
    """A line for each thing that a fleet of that size needs."""
    look, intake = found["look"], found["intake"]
    large = max(look, key=int)
    sqlite, postgresql = (intake["mqtt"].get(name) for name in ("sqlite", "postgresql"))
    overview = look[large]["answers"]["overview"]["median"]
    for vms in SIZES:
        rate = vms / HEARTBEAT_SECONDS
        times = vms / int(large)
        yield (
            f"**{vms:,} VMs** send {rate:,.0f} heartbeats a second, one a minute each. "
            f"{_consoles(rate, sqlite, 'SQLite')} {_consoles(rate, postgresql, 'PostgreSQL')}"
        )
        yield (
            "No console holds the fleet in memory. The overview reads every VM: about "
            f"{overview * times:,.0f} ms with the same processor."
        )
    yield (
        "So one console on two cores carries 100,000 VMs with a heartbeat a minute if nothing else "
        "runs there; `SEB_HEARTBEAT_INTERVAL=300` divides the rate by five. A million VMs belong "
        "in one console a region or a site: the records of a source are split by topic or by "
        "hub, and each part has a database of its own. Consoles that share a database share its "
        "one order of commits, so more of them survive more, and do not take in more."
    )


def _consoles(rate: float, measured: float | None, database: str) -> str:
    if not measured:
        return ""
    count = math.ceil(rate / (measured * _PART))
    who = "one console takes them in" if count == 1 else f"{count} separate consoles take them in"
    return f"At half of the {measured:,.0f} records a second measured with {database}, {who}."
