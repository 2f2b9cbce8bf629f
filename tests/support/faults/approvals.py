"""A bridge that dies at a chosen step between a cause and the end of its approval."""

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from support.commands.approval_over_mqtt import ApprovalOverMqtt
from support.eventually import eventually
from support.faults.cause_observer import CauseObserver
from support.faults.gated_receiver import GatedReceiver
from support.faults.mortal_delivery import Mortal
from support.faults.posts import FINAL
from support.process.bridge import BridgeProcess

from bridge.simulator.approvals import Post
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

RULE: Final = "drained"
RULES: Final = json.dumps([{"name": RULE, "event_type": ["Reboot"], "after": ["webhook"]}])


class MortalBench(Mortal):
    """One stage of approval; each bridge has one event of its own."""

    def __init__(self, home: Path, receiver: GatedReceiver, *, seed: int) -> None:
        self._home = home
        self._doomed = False
        self.receiver = receiver
        self.witness = CauseObserver(home / "state" / "seb.db", home)
        self.stage = ApprovalOverMqtt(
            home, simulator=Simulator(approval_delay=0.1, on_approval=self._is_asked)
        )
        self.commands: list[str] = []
        Mortal.__init__(self, self.stage.simulator, seed=seed)

    @property
    def env(self) -> dict[str, str]:
        """The variables of its bridges."""
        return {
            **self.stage.env,
            "SEB_APPROVAL__RULES": RULES,
            "SEB_SINK__WEBHOOK__URL": self.receiver.url,
        }

    @property
    def lines(self) -> list[bytes]:
        """What the file has."""
        file = self._home / "records.jsonl"
        return file.read_bytes().splitlines() if file.exists() else []

    def die_at(self, step: str, *, by_rule: bool) -> None:
        """A life that ends there. Raises `AssertionError` where it would not end."""
        with self.living():
            STEPS[step](self, self._prepare_rule() if by_rule else self._prepare_command())
        self._doomed = False
        self.receiver.release()

    def bridge(self, more: Mapping[str, str] | None = None) -> BridgeProcess:
        return BridgeProcess("run", env={**self.env, **(more or {})}, home=self._home)

    def doom(self) -> None:
        """Kill the bridge during its next POST, before the answer."""
        self._doomed = True

    def _is_asked(self, approval: Post) -> None:
        self.witness(approval)
        if self._doomed:
            self.life.send(signal.SIGKILL)
            self.life.wait()

    def _prepare_command(self) -> Callable[[], None]:
        """An event is announced; what a control plane does then."""
        record = self.stage.announce().record
        self.commands.append(jti := f"command-{len(self.commands)}")
        token = self.stage.signer.approve(record, jti=jti, rsn=f"reason of {jti}")
        vm_id = self.stage.simulator.vm.vm_id

        def send() -> None:
            self.stage.line.publish(vm_id, token)

        return send

    def _prepare_rule(self) -> Callable[[], None]:
        """An event is announced, for which the rule waits; what lets it act."""
        before = len(self.receiver.bodies)
        self.receiver.hold()
        self.stage.simulator.announce(SimulatedEvent(event_type="Reboot"))
        self.receiver.wait_for_more(before)
        return self.receiver.release

    def come_to_rest(self) -> None:
        """Every cause has its end, every event is over, and both sinks have everything."""
        simulator = self.stage.simulator
        assert simulator.wait_until_served(gets=simulator.history[-1].gets + 2, timeout=30)
        eventually(self._at_rest, what="an end of every approval", timeout=30)
        with simulator.change():
            for event in simulator.history[-1].json()["Events"]:
                simulator.end_event(event["EventId"])
        assert simulator.wait_until_served(gets=2)
        eventually(self._at_rest, what="the same records at both sinks")

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """What the file has of them."""
        return [each["data"] for each in map(json.loads, self.lines) if each["type"] == APPROVAL]

    def _at_rest(self) -> bool:
        if not {*self.lines} == {*self.receiver.bodies} != set():
            return False  # a line may be half written
        fields = {each["jti"]: each["state"] for each in self.receipts}
        return set(self.commands) <= fields.keys() and all(
            each in FINAL for each in fields.values()
        )


APPROVAL: Final = "seb.approval.v1"
Step = Callable[[MortalBench, Callable[[], None]], None]


def _at_post(bench: MortalBench, cause: Callable[[], None]) -> None:
    bench.doom()
    cause()


def _at_call(call: str, *, first: int = 1, last: int | None = None) -> Step:
    """Die as a thread enters its first such call, or its nth."""

    def die(bench: MortalBench, cause: Callable[[], None]) -> None:
        place = bench.draw.randint(first, last or first)
        bench.under(f"{call}:signal=KILL:when={place}", cause)

    return die


# One thread does all of an approval. It syncs four times: that it is accepted, that a request is
# about to be sent, that it is posted and that it is confirmed; it logs all but the second.
STEPS: Final[Mapping[str, Step]] = {
    "verify, half written": _at_call("pwrite64", last=6),
    "verify, not synced": _at_call("fdatasync"),
    "accepted, not posted": _at_call("write"),
    "request, not noted": _at_call("fdatasync", first=2),
    "post, answer withheld": _at_post,
    "receipt, half written": _at_call("pwrite64", first=10, last=20),
    "receipt, not synced": _at_call("fdatasync", first=3),
    "receipt, not told": _at_call("write", first=2),
    "confirm, not synced": _at_call("fdatasync", first=4),
}


def evidence_of(bench: MortalBench) -> dict[str, Any]:
    """What the oracle wants to know of it, beside the case."""
    simulator = bench.stage.simulator
    return {
        "received": {
            "file": bench.lines,
            "webhook": bench.receiver.bodies,
            "mqtt": [came.body for came in bench.stage.line.came],
        },
        "documents": bench.observed.documents,
        "standing": simulator.history[-1].json(),
        "posts": simulator.approvals,
        "rules": [RULE],
        "commands": bench.commands,
    }
