"""A bridge among everything that changes its records: documents, sinks, settings, its disk, the
clock and how long a poll takes. Its store, poller and outbox are real; nothing runs by itself.
"""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from support.documents.documents import VM, FakeClock, StandInImds, body, entry
from support.records.oracle import (
    Facts,
    Lineage,
    Moment,
    OraclePoll,
    OracleReceiver,
    OracleState,
    Record,
    gap_between,
    judge_poll,
)

from bridge.delivery.dispatcher import recipients
from bridge.events import bridge_records
from bridge.events.poller import Poller
from bridge.events.state import CurrentState
from bridge.imds.client import ImdsAnswer
from bridge.service.ownership import Ownership, open_readable
from bridge.service.scheduler import Watch
from bridge.store.approvals import approved_revisions
from bridge.store.database import Store
from bridge.store.opening import FILE_NAME
from bridge.store.outbox import Outbox
from sinks.base import Sink, SinkSettings
from sinks.samples import sample_context
from wire.observer import BridgeRun, Observer
from wire.vm import VmIdentity

Setup = tuple[str, bool]
"""Names of the sinks, each with ~ if it is of the other kind, and with ! if it follows events of
this VM alone; and whether the scope is `self`. Each kind of a name is a far end of its own."""
DISK_FULL, DISK_FINE = "PRAGMA query_only=ON", "PRAGMA query_only=OFF"


class Quiet(Sink[SinkSettings]):
    """A sink whose far end is the model's."""

    KIND: ClassVar[str] = "quiet"

    def deliver(self, records: Sequence[Any]) -> None:
        raise NotImplementedError


class CountingClock(FakeClock):
    """It also knows how much time there was, whatever the clocks show."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = 0.0
        """Seconds for which only the wall clock went on."""

    @property
    def real(self) -> float:
        """Seconds, whatever the clocks show."""
        return self.counted + self.paused

    @property
    def counted(self) -> float:
        """Those of them that the clocks of the machine count."""
        return self.monotonic() + self.suspended()

    def pause(self, seconds: float) -> None:
        """The host pauses the VM, and sets only its wall clock."""
        self.paused += seconds
        self.jump(seconds)


class ChangingImds(StandInImds):
    """Says what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, OracleState] = {}
        self.gone: dict[str, object] = {}
        """Since which incarnation an event is not there."""
        self.incarnation = 1
        self.is_odd = False
        """Whether the document also has an entry that could be any event."""
        self.answering: Callable[[], float] = lambda: 0.0
        """What happens between a document and the answer that has it; the monotonic clock's
        milliseconds.
        """

    def events(self) -> ImdsAnswer:
        answer = super().events()
        return replace(answer, latency_ms=self.answering())

    def document(self) -> bytes:
        entries: list[object] = [
            entry(event, status=each.status, resources=each.resources, duration=each.duration)
            for event, each in self.said.items()
        ]
        odd = [{"EventType": "Reboot"}] if self.is_odd else []
        return body(*entries, *odd, incarnation=self.incarnation)

    def say(self, event: str, state: OracleState | None) -> None:
        """From now on this is so."""
        before = self.said.get(event)
        if (state is None) == (before is None) and not (state and before and state.differs(before)):
            return
        self.incarnation += 1
        self.said.pop(event, None)
        if state is None:
            self.gone[event] = self.incarnation
        else:
            self.said[event] = replace(state, since=self.incarnation)


class Committing:
    """The store of the poller; something happens before each commit."""

    def __init__(self, store: Store, before: Callable[[], None]) -> None:
        self._store = store
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, *args: Any, **more: Any) -> Any:
        """The store's own, a moment later."""
        self._before()
        return self._store.commit(*args, **more)


class Owner(Ownership):
    """It is told who the VM is."""

    def __init__(self, clock: CountingClock, vm_id: str) -> None:
        settings: Any = SimpleNamespace(identity=SimpleNamespace(tags=()), poll_interval=1.0)
        super().__init__(settings, clock, boot_id="boot-1")
        self.vm = replace(VM, vm_id=vm_id)

    def _fetch(self, timeout: float | None) -> Any:
        return self.vm


def name_of(sink: str) -> str:
    """The name of a sink, without the mark of its kind."""
    return sink.rstrip("~")


def observer_of(vm: VmIdentity, run: str) -> Observer:
    """The observer of one run."""
    return Observer(
        vm=vm, node=None, bridge=BridgeRun(version="1", instance_id=run, site="default")
    )


class RecordBench:
    """One bridge, its far ends, and what must be true of them."""

    def __init__(self, directory: Path, setup: Setup) -> None:
        self._directory = directory
        self.clock = CountingClock()
        self.imds = ChangingImds()
        self.imds.answering = self._answered
        self._measured = 0.0
        self.facts = Facts()
        self.lineage = Lineage()
        self.receivers: dict[str, OracleReceiver] = {}
        self.records = 0
        self.vm_id = VM.vm_id
        self._runs = 0
        self._copy: tuple[bytes, Lineage, dict[str, bool]] | None = None
        self._named: dict[str, bool] = {}
        self.begin(setup)

    # A run

    def begin(self, setup: Setup) -> None:
        """A run with these settings begins."""
        names, self.scope_self = setup
        self._runs += 1
        self._looked: tuple[Moment, Moment] | None = None
        self._meanwhile: dict[str, Callable[[], None]] = {}
        store, reset = open_readable(self._directory, self.clock.now())
        vm = store.identity()
        if vm is None or vm.vm_id != self.vm_id:
            owner = Owner(self.clock, self.vm_id)
            vm = owner.identify(
                store, stop=threading.Event(), patient=False, on_failure=lambda _: None
            )
            assert vm is not None
            store, reset = owner.own_store(store, reset, vm)
        self.store = store
        self._committed: list[Record] = []
        store.subscribe(
            lambda records: self._committed.extend(json.loads(each.body) for each in records)
        )
        assert reset is None or not self.lineage.newest, "a store is set aside without a reason"
        observer = observer_of(vm, f"run-{self._runs}")
        self.current = CurrentState.after(
            self.store.last_seen(),
            observer,
            self.clock,
            interval=1.0,
            boot_id="boot-1",
            api_version=self.imds.api_version,
        )
        self.poller = Poller(
            self.imds,  # type: ignore[arg-type]  # it answers as a client does
            Committing(  # type: ignore[arg-type]  # it answers as the store does
                self.store, lambda: self._happens("commit")
            ),
            self.current,
            self.clock,
            scope_self=self.scope_self,
            boot_id="boot-1",
            approved=lambda: approved_revisions(self.store),
        )
        self._name_sinks(names)
        now = self.clock.now()
        if reset is not None:
            self._commit(bridge_records.store_reset(observer, now, reset))
        self._commit(
            bridge_records.started(
                observer, now, sinks=list(self._named), restarted=False, gap_seconds=None
            )
        )

    def _name_sinks(self, names: str) -> None:
        before = self._named
        self._named = {each.strip("!"): each.endswith("!") for each in names.split()}
        for sink in before.keys() - self._named.keys():
            self.lineage.left[sink] = self.store.head
            self.lineage.kinds[name_of(sink)] = sink
        for sink in self._named:
            receiver = self.receivers.setdefault(sink, OracleReceiver(self.facts))
            if sink in before:
                continue
            if self.lineage.kinds.get(name_of(sink), sink) == sink:
                left = self.lineage.left.get(sink, 0)
                receiver.join(self.lineage, left, self.store.head)
            else:
                receiver.replace()
        self.outbox = Outbox(self.store)
        self.outbox.register(
            recipients(
                Quiet(
                    name_of(sink),
                    SinkSettings(
                        kind="other" if sink.endswith("~") else "quiet",
                        affects_this_vm_only=ours_only,
                    ),
                    sample_context(),
                )
                for sink, ours_only in self._named.items()
            )
        )

    def stop(self, *, in_order: bool) -> None:
        """The run ends; where it is killed, it tells nothing."""
        if in_order:
            self._commit(
                bridge_records.stopped(self.current.observer, self.clock.now(), reason="stopped")
            )
        self.store.close()
        self.clock.advance(1)

    # What happens

    def restart(self, setup: Setup, *, in_order: bool) -> None:
        """Another run, perhaps with other settings."""
        self.stop(in_order=in_order)
        self.begin(setup)

    def say(self, event: str, state: OracleState | None) -> None:
        """From now on IMDS says this of an event, or that there is none."""
        self.imds.say(event, state)

    def poll(self) -> None:
        """A good poll; what it commits is every change, once."""
        self.clock.advance(1)
        asked = self._moment()
        visible = self._visible()
        gone = {
            event: "out of scope" if event in self.imds.said else self.imds.gone[event]
            for event in self.lineage.pending
        }
        self._committed.clear()
        assert self.poller.run()
        answered = self._answer
        gap = None if self._looked is None else gap_between(self._looked, (asked, answered))
        self._looked = (asked, answered)
        poll = OraclePoll(visible=visible, gone=gone, gap=gap, at=answered.wall)
        self.records += len(self._committed)
        judge_poll(self.lineage, self.facts, poll, self._committed)

    def slow_poll(
        self, how: str, seconds: float, until: str, event: str, state: OracleState | None
    ) -> None:
        """A poll that takes so long until its answer or its commit, while something changes."""

        def happens() -> None:
            self.stands_still(how, seconds)
            self.imds.say(event, state)

        self._meanwhile = {until: happens}
        self.poll()
        self._meanwhile.clear()

    def _answered(self) -> float:
        begun = self.clock.monotonic()
        self._happens("answer")
        self._answer = self._moment()
        return 1000 * (self.clock.monotonic() - begun)

    def _happens(self, until: str) -> None:
        self._meanwhile.pop(until, lambda: None)()

    def _moment(self) -> Moment:
        wall = self.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        clock = self.clock
        return Moment(wall=wall, real=clock.real, counted=clock.counted, measured=self._measured)

    def many(self, count: int) -> None:
        """So many other events come and go."""
        others = [f"F-{number}" for number in range(count)]
        for state in (OracleState(resources=("web_9",)), None):
            for event in others:
                self.imds.say(event, state)
            self.poll()

    def changes(self, event: str, count: int) -> None:
        """An event that is there changes so often."""
        for number in range(count):
            state = self.imds.said.get(event)
            if state is not None:
                self.imds.say(event, replace(state, duration=100 + number))
                self.poll()

    def serve(self, sink: str, how: str) -> None:
        """A sink's worker takes a batch: all of it; the first record; all, and ends before it marks
        it (`unmarked`), or marks it on a disk that takes nothing (`unwritten`); or the far end
        refuses the first record for good.
        """
        far_end = next((each for each in self._named if name_of(each) == sink), None)
        batch = None if far_end is None else self.outbox.next(sink, 3)
        if far_end is None or batch is None:
            return
        receiver, count = self.receivers[far_end], 1 if how == "some" else len(batch.records)
        if how == "refuse":
            record = batch.records[0]
            self.outbox.mark_dead(
                sink, record.sequence, reason="no", attempts=1, now=self.clock.now()
            )
            if record.event_id is not None:
                receiver.unsure.add(record.event_id)
            return
        for record in batch.records[:count]:
            receiver.take(json.loads(record.body))
        if how != "unmarked":
            self.outbox.move_past(sink, batch, count)
        if how in ("unmarked", "unwritten"):
            # If the sink leaves out events of other VMs from the next run on, their ends as well.
            receiver.unsure |= {
                record.event_id
                for record in batch.records
                if record.event_id is not None and not record.affects_this_vm
            }

    def drain(self) -> None:
        """Every sink gets everything; then its far end knows what is so, and the disk is tidy."""
        for sink, ours_only in self._named.items():
            self._serve_all(sink)
            self.receivers[sink].judge(self.lineage, ours_only=ours_only)
        self._judge_disk()

    def _serve_all(self, sink: str) -> None:
        while self.outbox.next(name_of(sink), 1) is not None:
            self.serve(name_of(sink), "all")

    def _judge_disk(self) -> None:
        """Once more records have come and were delivered, no more is kept than is needed."""
        for _ in range(3):
            self.heartbeat()
            for sink in self._named:
                self._serve_all(sink)
            self.poll()
        ((kept,),) = self.store.read("SELECT count(*) FROM records")
        ((dead,),) = self.store.read("SELECT count(DISTINCT sequence) FROM dead")
        away = self.receivers.keys() - self._named.keys()
        owed = set().union(*(self.receivers[name].open for name in away))
        room = 12 + dead + len(self.lineage.pending) + len(owed)
        assert kept <= room, f"the store keeps {kept} records where {room} are enough"

    def heartbeat(self) -> None:
        """The bridge says that it is alive."""
        self._commit(
            bridge_records.heartbeat(
                self.current.observer,
                self.clock.now(),
                interval=60,
                polled_at=None,
                pending=0,
                last_sequence=self.store.last_record_sequence,
            )
        )

    def full_disk(self) -> None:
        """A poll and deliveries while the disk takes nothing."""
        self.store.read(DISK_FULL)
        self.clock.advance(1)
        if self._differs():
            assert not self.poller.run()
        for sink in self._named:
            self.serve(name_of(sink), "unwritten")
        self.store.read(DISK_FINE)

    def odd(self) -> None:
        """From now on the document has an entry without an EventId, or has none any more."""
        self.imds.incarnation += 1
        self.imds.is_odd = not self.imds.is_odd

    def _differs(self) -> bool:
        before = {event: state.content for event, state in self.lineage.pending.items()}
        return before != {event: state.content for event, state in self._visible().items()}

    def _visible(self) -> dict[str, OracleState]:
        """The events that are within the scope of this run; what is absent beside an entry that
        could be any event may still be there.
        """
        perhaps = self.lineage.pending if self.imds.is_odd else {}
        return {event: state for event, state in perhaps.items() if event not in self.imds.said} | {
            event: state
            for event, state in self.imds.said.items()
            if state.names_us or not self.scope_self
        }

    # The clock

    def wait(self, seconds: float) -> None:
        """No poll for so long: IMDS does not answer."""
        self.clock.advance(seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.clock.jump(seconds)

    def stands_still(self, how: str, seconds: float) -> None:
        """The process is frozen while all clocks go on, the kernel suspends the machine, or its
        host pauses it; or time passes.
        """
        watch = Watch(self.clock)
        ways = {
            "freeze": self.clock.advance,
            "suspend": self.clock.suspend,
            "pause": self.clock.pause,
            "passes": self.clock.advance,
        }
        ways[how](seconds)
        if how != "passes":
            pause = watch.tick().pause
            self._measured += pause
            self.current.gaps.note_standstill(pause)

    def suspend(self, seconds: float) -> None:
        """The machine sleeps for so long."""
        self.clock.suspend(seconds)

    # The disk

    def copy(self) -> None:
        """Somebody copies the state directory."""
        self._copy = (self._image(), self.lineage.copy(), dict(self._named))

    def put_back(self, setup: Setup) -> None:
        """That copy is put back, with the settings of then or others."""
        if self._copy is None:
            return
        self.stop(in_order=True)
        image, lineage, self._named = self._copy
        self._replace(image)
        self.lineage = lineage.copy()
        self._forget()
        self.begin(setup)

    def lose(self, setup: Setup) -> None:
        """The store is gone."""
        self.stop(in_order=False)
        self._replace(None)
        self.lineage, self._copy, self._named = Lineage(), None, {}
        self._forget()
        self.begin(setup)

    def case(self, setup: Setup) -> None:
        """From the next start on, IMDS writes the vmId in the other case."""
        self.vm_id = self.vm_id.swapcase()
        self.restart(setup, in_order=True)

    def _image(self) -> bytes:
        return self.store._connection.serialize()

    def _replace(self, image: bytes | None) -> None:
        for path in self._directory.glob(f"{FILE_NAME}*"):
            path.unlink()
        if image is not None:
            (self._directory / FILE_NAME).write_bytes(image)

    def _forget(self) -> None:
        for name, receiver in self.receivers.items():
            events = {*receiver.view, *self.lineage.newest, *self.imds.said, *self.imds.gone}
            # A store that did not name the sink knows nothing of what it got.
            lineage = self.lineage if name in self._named else Lineage()
            receiver.lose_track(lineage, events)
            receiver.past = set()

    def _commit(self, draft: Any) -> None:
        (record,) = self.store.commit([draft])
        self.facts.is_one(json.loads(record.body), record.body)
