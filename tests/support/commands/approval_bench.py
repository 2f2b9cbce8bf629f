"""Approval without a network: a real store and poller, an IMDS that notes each POST, and a control
plane that knows what the records said.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.commands.control_plane import IssuerKey, jwks
from support.commands.forgery import ForgerTools
from support.documents.documents import EVENT_ID, VM, FakeClock, StandInImds, body, entry
from support.imds.poller_bench import state_and_poller

from bridge.approval.approvals import Approvals
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.approval.worker import ApprovalWorker
from bridge.config.approval import Rule
from bridge.events.state import CurrentState
from bridge.imds.client import ImdsError
from bridge.imds.exchange import WithheldError
from bridge.store.approvals import Approval, ApprovalStore
from bridge.store.database import Store, StoreError
from bridge.store.opening import open_store
from sinks.base import CommandMessage
from wire.record import read_record


class ObedientImds(StandInImds):
    """An IMDS that stands for some events, starts them when it is told to, and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.events_now: dict[str, dict[str, Any]] = {}
        self.incarnation = 1
        self.posts: list[str] = []
        self.effective: list[str] = []
        self.failures: list[Callable[[str], None]] = []
        """What happens to the next POSTs, one by one, in place of being taken."""
        self.starts = True
        """Whether an event that was approved is Started in the next document."""
        self.silent = False
        """Whether it has an error in place of a document."""
        self.connecting: Callable[[], object] | None = None
        """What happens while a POST waits for its connection."""

    def document(self) -> bytes:
        if self.silent:
            raise ImdsError("no: http_503", reason="http_503")
        self.incarnation += 1
        return body(*self.events_now.values(), incarnation=self.incarnation)

    def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
        if self.connecting is not None:
            self.connecting()
        if not may_send():
            raise WithheldError
        self.posts.append(event_id)
        if self.failures:
            self.failures.pop(0)(event_id)
            return
        self.take(event_id)

    def take(self, event_id: str) -> None:
        """The effect of a POST: the first one for an event that is Scheduled has it."""
        now = self.events_now.get(event_id)
        if now is None:
            raise ImdsError("IMDS answered HTTP 400", reason="http_400")
        if now["EventStatus"] == "Scheduled" and event_id not in self.effective:
            self.effective.append(event_id)
        if self.starts:
            now |= {"EventStatus": "Started", "NotBefore": ""}

    def lose_answer(self, event_id: str) -> None:
        """A POST that is taken, and its answer lost."""
        self.take(event_id)
        raise ImdsError("the connection broke", reason="connection")


def fails(reason: str, *, retry_after: float | None = None) -> Callable[[str], None]:
    """A POST that ends with this error."""

    def fail(event_id: str) -> None:
        raise ImdsError(f"no: {reason}", reason=reason, retry_after=retry_after)

    return fail


def approvals_of(
    current: CurrentState,
    approval_store: ApprovalStore,
    imds: ObedientImds,
    clock: FakeClock,
    *,
    rules: Sequence[Rule],
    acknowledged: Callable[[str, str], bool],
    trust: Path | None,
) -> Approvals:
    """The approvals of one run."""
    decisions = RuleDecisions(
        rules, approval_store, clock, vm_name=lambda: VM.name, acknowledged=acknowledged
    )
    return Approvals(
        current,
        approval_store,
        imds,  # type: ignore[arg-type]  # it answers as a client does
        clock,
        rules=decisions,
        trust=Trust(trust),
    )


def approval_worker_of(approvals: Approvals, clock: FakeClock) -> ApprovalWorker:
    """What takes turns with these approvals, without its thread."""
    approval_worker = ApprovalWorker(approvals, monotonic=clock.monotonic)
    approval_worker.confirm()
    return approval_worker


def tell_poll(approval_worker: ApprovalWorker, *, answered: bool) -> None:
    """A poll has ended."""
    approval_worker.note_poll(answered=answered)


def has_work(approval_worker: ApprovalWorker) -> bool:
    """Whether a turn would do anything."""
    return approval_worker.has_work


def run_once(approval_worker: ApprovalWorker) -> None:
    """What the thread does before it looks again for work."""
    approval_worker.run_once()


class ApprovalBench:
    """One bridge's approvals, over restarts and lost stores; time moves by hand."""

    def __init__(self, directory: Path, *rules: Rule, interval: float = 1.0) -> None:
        self.directory = directory / "state"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trust_file: Path | None = directory / "trust.json"
        self.signer = IssuerKey()
        self.other = IssuerKey("key-2", issuer="https://other.example")
        self.curve = IssuerKey("key-3", alg="ES256")
        self.trust(self.signer, self.other, self.curve)
        self.rules = list(rules)
        self.interval = interval
        self.scope_self = False
        self.clock = FakeClock()
        self.imds = ObedientImds()
        self.acknowledged: set[str] = set()
        """Record ids that every sink has acknowledged."""
        self.settled = 0
        self.begin()

    def begin(self, directory: Path | None = None) -> None:
        """A run on the store, or on that of another directory."""
        self.directory = directory or self.directory
        self.store, _ = open_store(self.directory, self.clock.now())
        self.current, self.poller = state_and_poller(
            self.store,
            self.imds,
            self.clock,
            interval=self.interval,
            scope_self=self.scope_self,
        )
        self.approval_store = self.make_approval_store(self.store)
        self.approvals = approvals_of(
            self.current,
            self.approval_store,
            self.imds,
            self.clock,
            rules=self.rules,
            acknowledged=self._acknowledged,
            trust=self.trust_file,
        )

    def make_approval_store(self, store: Store) -> ApprovalStore:
        """The store of approvals of a run; a test may give one that fails."""
        return ApprovalStore(store, self.clock.now())

    def restart(self, directory: Path | None = None) -> None:
        """Another run, on the same store or on that of another directory."""
        self.close()
        self.begin(directory)

    def decide_by(self, *rules: Rule) -> None:
        """Another run, with these rules."""
        self.rules = list(rules)
        self.restart()

    def close(self) -> None:
        """Let go of the store."""
        with suppress(AttributeError):
            self.store.close()

    def trust(self, *signers: IssuerKey) -> None:
        """Trust these keys from now on."""
        assert self.trust_file is not None
        self.trust_file.write_text(jwks(*signers))

    # IMDS

    def announce(self, event_id: str = EVENT_ID, **fields: Any) -> dict[str, Any]:
        """An event is announced and looked at; its record."""
        self.imds.events_now[event_id] = entry(event_id, **fields)
        self.poll()
        return self.record(event_id)

    def change(self, event_id: str = EVENT_ID, **fields: Any) -> None:
        """IMDS's words about an event are others from the next look on."""
        self.imds.events_now[event_id] |= fields

    def vanish(self, event_id: str = EVENT_ID) -> None:
        """The event is over from the next look on."""
        del self.imds.events_now[event_id]

    def poll(self, *, after: float = 1.0) -> None:
        """A poll so many seconds later, and what approval makes of it."""
        self.clock.advance(after)
        assert self.poller.run()
        self.approvals.note_poll()
        self.go_on()

    def fail(self, *, after: float = 1.0) -> None:
        """A poll that goes wrong so many seconds later, and what approval makes of it."""
        self.clock.advance(after)
        self.imds.silent = True
        assert not self.poller.run()
        self.imds.silent = False
        self.approvals.note_poll()
        self.go_on()

    def go_on(self) -> None:
        """Approval does what there is to do, one request to IMDS after the other."""
        with suppress(StoreError):  # as the thread of approvals: the next poll goes on
            while self.approvals.act_once():
                pass

    # Commands

    def send(self, token: bytes, **how: Any) -> None:
        """A command comes in."""
        given: dict[str, Any] = {"channel": "mqtt", "on_settled": self._settle}
        self.approvals.command(CommandMessage(token=token, **given | how))
        self.go_on()

    def person(self, event_id: str = EVENT_ID, **how: Any) -> Approval:
        """A person on the VM approves an event."""
        approval = self.approvals.local(event_id, **{"user": "anna"} | how)
        self.go_on()
        return approval

    def approve(self, record: Mapping[str, Any] | None = None, **changes: Any) -> bytes:
        """A good approval of the event, in the bridge's time."""
        return self.signer.approve(record or self.record(), now=self.seconds, **changes)

    @property
    def seconds(self) -> int:
        """Seconds since 1970."""
        return int(self.clock.now().timestamp())

    # What came of it

    def records(self, *, after: int = 0) -> list[dict[str, Any]]:
        """Every record behind that place in the stream, as a consumer has it."""
        rows = self.store.read(
            "SELECT body FROM records WHERE sequence > ? ORDER BY sequence", (after,)
        )
        read = [read_record(text) for (text,) in rows]
        return [{"id": each.id, "type": each.type, "data": each.data} for each in read]

    def record(self, event_id: str = EVENT_ID) -> dict[str, Any]:
        """The latest record of an event."""
        return [
            each
            for each in self.records()
            if each["data"].get("event", {}).get("eventId") == event_id
        ][-1]

    def receipts(self, *, after: int = 0) -> list[Mapping[str, Any]]:
        """The data of every receipt."""
        records = self.records(after=after)
        return [each["data"] for each in records if each["type"] == "seb.approval.v1"]

    def story(self, *, after: int = 0) -> list[tuple[str, str | None]]:
        """State and reason of every receipt."""
        return [(each["state"], each["reason"]) for each in self.receipts(after=after)]

    def refused(self) -> dict[str, int]:
        """How many commands were refused, by reason."""
        return dict(self.approvals.refusals_by_reason)

    def entries(self) -> Sequence[Approval]:
        """What the store of approvals has unfinished."""
        return self.approval_store.unfinished()

    def _settle(self) -> None:
        self.settled += 1

    def _acknowledged(self, sink: str, event: str) -> bool:
        return self.current.events[event].record_id in self.acknowledged


def populate(bench: ApprovalBench) -> None:
    """One event of each kind, none of them looked at since long.

    E-SOON names this VM and is Scheduled, in its second revision; E-ELSE is another such; E-BEGUN
    has started; E-GONE is over; E-OTHERS names other VMs only.
    """
    bench.imds.events_now = {
        "E-SOON": entry("E-SOON"),
        "E-ELSE": entry("E-ELSE", event_type="Reboot"),
        "E-BEGUN": entry("E-BEGUN", status="Started", not_before=""),
        "E-GONE": entry("E-GONE"),
        "E-OTHERS": entry("E-OTHERS", resources=("web_4", "web_33")),
    }
    bench.poll()
    bench.change("E-SOON", Resources=["web_3", "web_4"])
    bench.vanish("E-GONE")
    bench.poll()


def scene(bench: ApprovalBench) -> ForgerTools:
    """What a forger has at hand in a full bench, now."""
    records = {
        (each["data"]["event"]["eventId"], each["data"]["transition"]): each
        for each in bench.records()
        if "event" in each["data"]
    }
    return ForgerTools(
        signer=bench.signer,
        other=bench.other,
        curve=bench.curve,
        soon=records["E-SOON", "updated"],
        before=records["E-SOON", "scheduled"],
        elsewhere=records["E-ELSE", "scheduled"],
        begun=records["E-BEGUN", "started"],
        gone=records["E-GONE", "scheduled"],
        others=records["E-OTHERS", "scheduled"],
        now=bench.seconds,
    )
