"""A bridge with a file and a webhook that can withhold its answers, and what both have."""

from collections.abc import Mapping
from pathlib import Path

from support.faults.gated_receiver import GatedReceiver
from support.process.bridge import BridgeProcess, fast

from bridge.simulator.simulator import Simulator


class TwoSinks:
    """Bridges that come and go at one state directory, one simulator and two sinks."""

    def __init__(
        self, home: Path, simulator: Simulator, receiver: GatedReceiver, *, disk: Path | None = None
    ) -> None:
        self.home = home
        self.simulator = simulator
        self.receiver = receiver
        self.file = home / "records.jsonl"
        self.state = (disk or home) / "state"

    @property
    def env(self) -> dict[str, str]:
        """The variables of the bridges. Their only other writes are to the file."""
        return fast(
            self.simulator.url,
            self.state.parent,
            SEB_SINK__FILE__PATH=str(self.file),
            SEB_SINK__WEBHOOK__URL=self.receiver.url,
        )

    def bridge(self, more: Mapping[str, str] | None = None) -> BridgeProcess:
        """`seb run`, not started."""
        return BridgeProcess("run", env={**self.env, **(more or {})}, home=self.home)

    @property
    def lines(self) -> list[bytes]:
        """What the file has, whole lines or not."""
        return self.file.read_bytes().splitlines() if self.file.exists() else []

    @property
    def received(self) -> dict[str, list[bytes]]:
        """What arrived, by sink."""
        return {"file": self.lines, "webhook": self.receiver.bodies}
