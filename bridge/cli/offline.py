"""What a command knows of the VM if no bridge runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from bridge.config.load import Configuration
from bridge.version import __version__
from sinks.base import SinkContext
from sinks.record import VmIdentity

NOBODY: Final = VmIdentity(vm_id="00000000-0000-0000-0000-000000000000", name="unknown")


def context_for(config: Configuration, vm: VmIdentity) -> SinkContext:
    """What a sink may know without a running bridge."""
    return SinkContext(
        identity=lambda: vm,
        now=lambda: datetime.now(UTC),
        site=config.settings.site,
        version=__version__,
        instance_id="check",
    )
