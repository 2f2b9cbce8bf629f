"""A VM that prepares, its approvals and its settings, over any history.

Each POST finds the VM prepared for the event as it is, and once an event is over, whatever has
prepared for it has been told so.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.commands.approval_bench import (
    ObedientImds,
    approval_worker_of,
    has_work,
    run_once,
    tell_poll,
)
from support.documents.documents import LATER, VM, FakeClock, entry
from support.imds.poller_bench import state_and_poller

from bridge.approval.approvals import Approvals
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.config.approval import Rule
from bridge.imds.client import ImdsError
from bridge.imds.exchange import WithheldError
from bridge.preparation.open_preparations import PreparingSpec
from bridge.preparation.preparations import Preparations
from bridge.preparation.sink import PreparingSink
from bridge.store.approvals import ApprovalStore
from bridge.store.database import StoreError
from bridge.store.opening import open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from sinks.base import Sink, SinkError, SinkRejected, SinkSettings
from sinks.samples import sample_context
from wire.record import EVENT_ENDED, EVENT_STARTED, EVENT_TYPES, Record

NAME = "drain"
KINDS = ("program", "kubernetes")
Setup = tuple[str, bool]
"""The kind of the sink, and whether it prepares; if not, it gets each event of this VM at once."""
SETUPS: list[Setup | None] = [
    *[("program", True)] * 4,
    ("kubernetes", True),
    *[("program", False)] * 2,
    ("kubernetes", False),
    *[None] * 2,
]
"""None: the sink is out of the settings."""
ANSWERS = [*["takes it"] * 6, "fails", "refuses", "is killed", "is not marked"]
DISK_FULL, DISK_FINE = "PRAGMA query_only=ON", "PRAGMA query_only=OFF"
RULES = [(), (Rule(name="any", max_resources=3),)]
EVENTS = ("E-1", "E-2", "E-3")
STATES: list[dict[str, Any] | None] = [
    {},
    {},
    {"duration": 60},
    {"resources": ("web_4",)},
    {"resources": ("web_3", "web_4")},
    {"status": "Started", "not_before": ""},
    {"not_before": LATER},
    None,
    None,
]
"""None: the event is not there."""


class KilledError(BaseException):
    """The bridge is killed while the program runs, or before it has noted how that ended."""


class StandInDrain(Sink[SinkSettings]):
    """What prepares, of one kind: it goes away for an event, and comes back at its end."""

    KIND = "machine"

    def __init__(self, kind: str) -> None:
        super().__init__(NAME, SinkSettings(kind=kind), sample_context())
        self.away: dict[str, str] = {}
        """The fingerprint for which it went away, by event."""
        self.prepared: dict[str, set[str]] = {}
        """The fingerprints for which it went away, by event, since a run for the event failed."""
        self.unsure: set[str] = set()
        """Events whose end it refused, or a person has dropped."""
        self.answer = "takes it"

    def deliver(self, records: Any) -> None:
        """Do as `answer` says."""
        for record in records:
            self._run(record)

    def _run(self, record: Record) -> None:
        event = str(record.event_id)
        over = record.type == EVENT_ENDED or not record.affects_this_vm
        is_cut = self.answer not in ("takes it", "is not marked")  # the outbox marks, not the drain
        if is_cut and record.type != EVENT_STARTED:  # which undoes nothing, and comes again
            self.prepared.pop(event, None)
        if self.answer == "fails":
            raise SinkError("no")
        if self.answer == "refuses":
            self.unsure |= {event} if over else set()
            raise SinkRejected("never")
        if over:
            self.away.pop(event, None)
            self.prepared.pop(event, None)
            self.unsure.discard(event)
        elif record.type == EVENT_STARTED:
            self.away.setdefault(event, "")
        else:
            self.away[event] = record.data["fingerprint"]
            self.prepared.setdefault(event, set()).add(record.data["fingerprint"])
        if self.answer == "is killed":
            raise KilledError


class HangingImds(ObedientImds):
    """The rest of the world goes on while a POST waits for its connection."""

    def __init__(self, bench: "PreparingBench") -> None:
        super().__init__()
        self._bench = bench
        self.starts = False

    def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
        """Judge what is sent."""
        self._bench.interrupt()
        if not may_send():
            raise WithheldError
        self._bench.judge(event_id)
        if self._bench.random.random() < 0.3:
            reason = self._bench.pick(["http_503", "connection", "refused"])
            raise ImdsError(f"no: {reason}", reason=reason)
        super().start(event_id, may_send=lambda: True)


class PreparingBench:
    """One bridge, and the VM that prepares. Nothing runs by itself."""

    def __init__(self, directory: Path, number: int) -> None:
        self.random = random.Random(number)
        self.posts = 0
        self._directory = directory
        self._clock = FakeClock()
        self._imds = HangingImds(self)
        self._machines = {kind: StandInDrain(kind) for kind in KINDS}
        self._setup: Setup | None = SETUPS[0]
        self._sink: Sink[Any]
        self._interrupted = False
        self._begin()

    def pick(self, among: list[Any]) -> Any:
        """One of these."""
        return among[self.random.randrange(len(among))]

    def live(self, steps: int) -> None:
        """Live through so many steps; then every event is over, and every kind hears of it."""
        for _ in range(steps):
            self.pick(self._steps())()
        self._imds.events_now.clear()
        for kind in (*KINDS, *KINDS):
            self._restart((kind, True))
            self._poll()
            self._work()
            self._serve_all()
        for machine in self._machines.values():
            left = machine.away.keys() - machine.unsure
            assert not left, f"the {machine.settings.kind} was not told that {left} is over"
        self._store.close()

    def _steps(self) -> list[Callable[[], object]]:
        return [
            *[self._say] * 5,
            *[self._poll_and_work] * 4,
            self._poll,
            *[self._flicker] * 2,
            *[self._ask] * 2,
            *[lambda: self._serve(self.pick(ANSWERS))] * 6,
            self._retry,
            self._drop,
            self._fill_disk,
            lambda: self._clock.advance(self.pick([1, 300, 900])),
            lambda: self._restart(self.pick(SETUPS)),
        ]

    def _begin(self) -> None:
        clock = self._clock
        self._store, _ = open_store(self._directory, clock.now())
        scope_self = self.random.random() < 0.2
        self._current, self._poller = state_and_poller(
            self._store, self._imds, clock, scope_self=scope_self
        )
        self._outbox = Outbox(self._store)
        self._preparations: Preparations | None = None
        if self._setup is None:
            self._outbox.register({})
        elif self._setup[1]:
            self._preparations = self._prepare_with(self._setup[0])
        else:
            self._deliver_to(self._setup[0])
        approval_store = ApprovalStore(self._store, clock.now())
        rules = RuleDecisions(
            self.pick(RULES),
            approval_store,
            clock,
            vm_name=lambda: VM.name,
            acknowledged=lambda *_: True,
        )
        approvals = Approvals(
            self._current,
            approval_store,
            self._imds,  # type: ignore[arg-type]  # it answers as a client does
            clock,
            rules=rules,
            trust=Trust(None),
            preparations=self._preparations,
        )
        self._approvals = approvals
        self._worker = approval_worker_of(approvals, clock)

    def _prepare_with(self, kind: str) -> Preparations:
        spec = PreparingSpec(sink=NAME, kind=kind, lead=120.0)
        preparations = Preparations(spec, self._store, self._current, self._clock)
        self._sink = PreparingSink(self._machines[kind], preparations)
        recipient = Recipient(kind=kind, prepares=True, accepts=self._sink.accepts)
        self._outbox.register({NAME: recipient})
        preparations.adopt(self._outbox)
        self._current.preparation = preparations.state_of
        return preparations

    def _deliver_to(self, kind: str) -> None:
        self._sink = self._machines[kind]
        recipient = Recipient(
            kind=kind, accepts=lambda kind, concerns: kind in EVENT_TYPES and concerns is True
        )
        self._outbox.register({NAME: recipient})

    def _restart(self, setup: Setup | None) -> None:
        """Another run, perhaps with other settings."""
        self._store.close()
        self._clock.advance(1)
        self._setup = setup
        self._begin()

    def _retry(self) -> None:
        """A person has dead records tried again, before a restart or not."""
        self._outbox.retry(NAME, None)
        if self.random.random() < 0.5:
            self._restart(self._setup)

    def _drop(self) -> None:
        """A person drops dead records: of their events nobody knows who is told of the end."""
        rows = self._store.read(
            "SELECT event FROM records JOIN dead USING (sequence) WHERE again != 2"
        )
        for machine in self._machines.values():
            machine.unsure |= {event.upper() for (event,) in rows if event is not None}
        self._outbox.dead.drop(NAME, None)

    def _fill_disk(self) -> None:
        """The disk takes nothing for some steps."""
        self._store.read(DISK_FULL)
        full = self._store
        steps = [self._say, self._poll, self._work, self._ask, lambda: self._serve("takes it")]
        for _ in range(self.random.randrange(1, 4)):
            with suppress(StoreError):
                self.pick(steps)()
        full.read(DISK_FINE)

    def _say(self) -> None:
        event, state = self.pick(list(EVENTS)), self.pick(STATES)
        self._imds.events_now.pop(event, None)
        if state is not None:
            self._imds.events_now[event] = entry(event, event_type="Reboot", **state)

    def _poll(self) -> None:
        """A poll that the approvals' thread has not followed yet."""
        self._clock.advance(0.5)
        tell_poll(self._worker, answered=self._poller.run())

    def _flicker(self) -> None:
        """An event is another one for a moment, and the sink may get something meanwhile."""
        event = self.pick(list(EVENTS))
        before = self._imds.events_now.get(event)
        for state in (self.pick(STATES[2:5]), None):
            if before is not None:
                other = None if state is None else entry(event, event_type="Reboot", **state)
                self._imds.events_now[event] = other or before
            self._poll()
            if self.random.random() < 0.5:
                self._serve("takes it")

    def _work(self) -> None:
        for _ in range(6):
            if has_work(self._worker):
                run_once(self._worker)

    def _poll_and_work(self) -> None:
        self._poll()
        self._work()

    def _ask(self) -> None:
        """A person on the VM asks for something."""
        for event in list(self._current.events):
            act = self.pick(["approve", "prepare", None])
            try:
                if act is not None:
                    self._approvals.local(event, user="anna", act=act)
            except LookupError:
                pass  # it is over, has begun, or nothing prepares

    def _serve(self, answer: str) -> bool:
        """The sink gets its next record; whether there was one."""
        if self._setup is None or (batch := self._outbox.next(NAME, 1)) is None:
            return False
        machine = self._machines[self._setup[0]]
        machine.answer = answer
        try:
            self._sink.deliver(batch.records)
        except SinkRejected as refused:
            self._outbox.mark_dead(
                NAME,
                batch.records[0].sequence,
                reason=str(refused),
                attempts=1,
                now=self._clock.now(),
                again=batch.again,
            )
        except SinkError:
            return True
        except KilledError:
            self._restart(self._setup)
        else:
            if answer == "is not marked":
                self._restart(self._setup)
            else:
                self._outbox.move_past(NAME, batch)
        return True

    def _serve_all(self) -> None:
        while self._serve("takes it"):
            self._work()

    def interrupt(self) -> None:
        """What happens while a POST waits; its own thread does nothing meanwhile."""
        if self._interrupted:
            return
        self._interrupted = True
        for _ in range(self.random.randrange(4)):
            self.pick(
                [self._say, self._poll, lambda: self._serve(self.pick(["takes it", "fails"]))]
            )()
        self._interrupted = False

    def judge(self, event_id: str) -> None:
        """A POST goes out, and must find the VM prepared for the event as it is: by the last run
        for the event, or by an earlier one since which each run ended with 0.
        """
        self.posts += 1
        tracked = self._current.events[event_id.casefold()]
        if self._setup is not None and self._setup[1] and tracked.affects_this_vm:
            machine = self._machines[self._setup[0]]
            prepared = {machine.away.get(event_id), *machine.prepared.get(event_id, ())}
            assert tracked.fingerprint in prepared, f"a POST, and {event_id} is not prepared"
