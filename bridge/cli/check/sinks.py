"""The step of `seb check` for sinks: each checks its destination, all at once, in limited time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from bridge.cli.offline import context_for
from bridge.config.load import Configuration, SinkSpec
from sinks.base import Check, SinkContext
from sinks.record import VmIdentity

SINK_SECONDS: Final = 30.0
"""How long a sink's own check may take."""


def look_at_sinks(config: Configuration, vm: VmIdentity) -> list[Sequence[Check]]:
    """The lines of each sink, in the order of the configuration."""
    context = context_for(config, vm)
    waits = [_begin(spec, context) for spec in config.sinks]
    return [wait() for wait in waits]


def _begin(spec: SinkSpec, context: SinkContext) -> Callable[[], Sequence[Check]]:
    found: list[Check] = []

    def look() -> None:
        try:
            found.extend(spec.sink_class(spec.name, spec.settings, context).check())
        except Exception as error:  # noqa: BLE001  # a sink may be anybody's; say so and go on
            found.append(
                Check(
                    level="fail",
                    text=f"its check failed with {type(error).__name__}",
                    remedy="this is a bug in the sink; report it to its author",
                )
            )

    thread = threading.Thread(target=look, name=f"check-{spec.name}", daemon=True)
    thread.start()

    def wait() -> Sequence[Check]:
        thread.join(SINK_SECONDS)
        if thread.is_alive():
            return [
                Check(
                    level="fail",
                    text=f"its check did not end within {SINK_SECONDS:g} s",
                    remedy="see that a firewall lets the connection through",
                )
            ]
        return found or [Check(level="ok", text="nothing to check")]

    return wait
