"""The VMs of the demo: each has a simulated metadata service, and a bridge."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import UnknownEventError
from bridge.simulator.vm import SimulatedVm
from console.demo.bridges import DemoBridge
from console.ingest.vm_secrets import pull_token, secret_text, webhook_secret

_HEARTBEAT_SECONDS: Final = "4"
"""A VM counts as silent after three of these intervals."""


class DemoVm:
    """One VM of the demo."""

    def __init__(
        self,
        name: str,
        *,
        directory: Path,
        url: str,
        key: bytes,
        trust: Path,
        site: str,
        scale_set: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        identity = SimulatedVm(
            name=name,
            vm_id=str(uuid5(NAMESPACE_URL, f"seb-console-demo/{name}")),
            scale_set=scale_set,
            resource_group="demo",
            location="westeurope" if site == "amsterdam" else "northeurope",
        )
        self.name = name
        self.approved = threading.Event()
        """Set by an approval that came to this VM."""
        self.simulator = Simulator(
            vm=identity, approval_delay=5.0, on_approval=lambda _: self.approved.set()
        )
        self._url = url
        self._secret = secret_text(webhook_secret(key, identity.vm_id))
        self._token = pull_token(key, identity.vm_id)
        self._trust = trust
        self._site = site
        self._directory = directory / name
        self._settings = dict(settings or {})
        self._bridge: DemoBridge | None = None

    def start(self) -> None:
        """Start the simulated metadata service, and a bridge that polls it."""
        self.simulator.start()
        settings = {
            "SEB_IMDS__URL": self.simulator.url,
            "SEB_SITE": self._site,
            "SEB_HTTP__LISTEN": "",
            "SEB_HEARTBEAT_INTERVAL": _HEARTBEAT_SECONDS,
            "SEB_LOG__LEVEL": "warning",
            "SEB_SINK__CONSOLE__KIND": "webhook",
            "SEB_SINK__CONSOLE__URL": f"{self._url}/ingest/v1/records",
            "SEB_SINK__CONSOLE__SECRET": self._secret,
            "SEB_COMMANDS__PULL_URL": f"{self._url}/pull/v1/commands",
            "SEB_COMMANDS__PULL_TOKEN": self._token,
            "SEB_APPROVAL__TRUST": str(self._trust),
        }
        self._bridge = DemoBridge(self._directory, settings | self._settings)
        self._bridge.start()

    @property
    def bridge(self) -> DemoBridge:
        """The VM's bridge. Raises `RuntimeError` before `start`."""
        if self._bridge is None:
            raise RuntimeError("a VM of the demo has no bridge before start()")
        return self._bridge

    def ask_to_end(self) -> None:
        """Ask the bridge to end."""
        if self._bridge is not None:
            self._bridge.ask_to_end()

    def end(self) -> None:
        """End the bridge and the simulated metadata service."""
        if self._bridge is not None:
            self._bridge.end()
        self.simulator.stop()


class SharedEvent:
    """One event that Azure shows to several VMs at once."""

    def __init__(
        self,
        vms: Sequence[DemoVm],
        event_type: str,
        *,
        notice: float,
        duration: int = -1,
        source: str = "Platform",
        description: str = "",
    ) -> None:
        """Announce an event to all these VMs; it names them all. `notice` and `duration` in
        seconds.
        """
        self._vms = vms
        event = SimulatedEvent(
            event_type=event_type,
            resources=tuple(vm.name for vm in vms),
            not_before=datetime.now(UTC) + timedelta(seconds=notice),
            duration=duration,
            source=source,
            description=description,
        )
        self._id = event.event_id
        for vm in vms:
            vm.approved.clear()
            vm.simulator.announce(event)

    @property
    def is_approved(self) -> bool:
        """Whether one of the VMs has approved the event: that counts for all of them."""
        return any(vm.approved.is_set() for vm in self._vms)

    def start(self) -> None:
        """Start the event on every VM."""
        for vm in self._vms:
            with suppress(UnknownEventError):
                vm.simulator.start_event(self._id)

    def end(self) -> None:
        """End the event on every VM."""
        for vm in self._vms:
            with suppress(UnknownEventError):
                vm.simulator.end_event(self._id)
