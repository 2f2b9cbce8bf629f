"""One VM that reaches its console over HTTPS alone: records by webhook, commands by poll."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from support.console.decision_bench import made_key
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.process.bridge import BridgeProcess

from bridge.simulator.approvals import Post
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


class HttpsBench:
    """An IMDS with one VM, and a key that consoles sign with and its bridge trusts."""

    def __init__(
        self, directory: Path, *, on_approval: Callable[[Post], None] = lambda _: None
    ) -> None:
        self.directory = directory
        self.key, self.trust = made_key(directory / "keys")
        self.simulator = Simulator(approval_delay=0.3, on_approval=on_approval)
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        self.stack.enter_context(self.simulator)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def console(self, name: str = "console", **settings: str) -> ConsoleProcess:
        """A console that can approve over HTTPS, not started."""
        place = self.directory / name
        return ConsoleProcess(place, KEY=str(self.key), PULL="true", **settings)

    def bridge(self, console: ConsoleProcess) -> BridgeProcess:
        """A bridge with the lines of `enroll` and nothing else that connects it, not started."""
        home = self.directory / "bridge"
        home.mkdir()
        done = console.run("enroll", self.simulator.vm.vm_id)
        lines = dict(line.split("=", maxsplit=1) for line in done.stdout.splitlines())
        own = {
            "SEB_IMDS__URL": self.simulator.url,
            "SEB_STATE_DIR": str(home / "state"),
            "SEB_POLL_INTERVAL": "0.2",
            "SEB_HEARTBEAT_INTERVAL": "5",
            "SEB_APPROVAL__TRUST": str(self.trust),
        }
        return BridgeProcess("run", env={**own, **lines}, home=home)

    def announced(self, console: ConsoleProcess) -> dict[str, Any]:
        """A new event that names the VM, once it waits for a decision."""
        soon = datetime.now(UTC) + timedelta(minutes=10)
        names = (self.simulator.vm.name,)
        event = SimulatedEvent(event_type="Reboot", not_before=soon, resources=names)
        self.simulator.announce(event)

        def is_due() -> bool:
            shown = console.events().get(event.event_id)
            return shown is not None and shown["decision"]["state"] == "due"

        eventually(is_due, what=f"a due decision\n{console.log}", timeout=60)
        return dict(console.events()[event.event_id])

    def spread(self, event_id: str) -> None:
        """See `DecisionBench`: there is one VM."""

    @property
    def effective(self) -> list[str]:
        """The events that POSTs have started."""
        return [event_id for post in self.simulator.approvals for event_id in post.started]
