"""A VM: the bridge's real store, poller, preparations and approvals, its program and its line."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.documents.documents import FakeClock
from support.turn_world.azure import Azure, VmImds
from support.turn_world.line import Kind, VmLine
from support.turn_world.oracle import TurnOracle
from support.turn_world.program import DrainingProgram
from support.turn_world.simulation import Simulation

from bridge.approval.approvals import Approvals
from bridge.approval.rule_decisions import RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.approval.worker import ApprovalWorker
from bridge.events import bridge_records
from bridge.events.poller import Poller
from bridge.events.state import CurrentState
from bridge.preparation.open_preparations import PreparingSpec
from bridge.preparation.preparations import Preparations
from bridge.preparation.sink import PreparingSink
from bridge.store.approvals import ApprovalStore, approved_revisions
from bridge.store.opening import FILE_NAME, open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from sinks.base import CommandMessage, SinkContext, SinkError, SinkRejected
from sinks.kinds.mqtt.messages import state_message, status_message, topics_of
from wire.observer import BridgeRun, Observer
from wire.record import PREPARATION, read_record
from wire.state import PendingEvent
from wire.vm import VmIdentity

HEARTBEAT_SECONDS = 60.0
_VERSION = "1.0.0"


class WorldVm:
    """One VM of the group. It is active while it runs: it may be down, or frozen."""

    def __init__(
        self,
        number: int,
        *,
        simulation: Simulation,
        azure: Azure,
        oracle: TurnOracle,
        directory: Path,
        trust: Path,
        line: VmLine,
        prepares: bool,
    ) -> None:
        self.name = f"db-{number}"
        self.vm_id = f"{number:08}-0000-4000-8000-000000000000"
        self.zone = str(number % 2 + 1)
        self.prepares = prepares
        self.line = line
        self.imds = VmImds(azure, self.name, simulation)
        self.program = DrainingProgram(self)
        self.is_up = True
        self.back_at = 0.0
        """When the VM is up again, if it is down."""
        self.frozen_until = 0.0
        self.has_lost_store = False
        self._simulation = simulation
        self._oracle = oracle
        self._directory = directory / self.name
        self._trust = trust
        self._clock = FakeClock()
        self._boot = 1
        self._runs = 0
        self._begin()

    # Its runs

    def _begin(self) -> None:
        """Begin a run of the bridge, as `bridge/service` does."""
        self._runs += 1
        clock = self._clock
        self._store, reset = open_store(self._directory, clock.now())
        self._store.read("PRAGMA synchronous=OFF")
        identity = self._identity()
        self._observer = Observer(
            vm=identity,
            node=None,
            bridge=BridgeRun(version=_VERSION, instance_id=self._run_id, site="default"),
        )
        boot_id = f"boot-{self._boot}"
        self._current = CurrentState.after(
            self._store.last_seen(),
            self._observer,
            clock,
            interval=1.0,
            boot_id=boot_id,
            api_version=self.imds.api_version,
        )
        store = self._store
        self._poller = Poller(
            self.imds,  # type: ignore[arg-type]  # it answers as a client does
            store,
            self._current,
            clock,
            scope_self=False,
            approved=lambda: approved_revisions(store),
            boot_id=boot_id,
        )
        self._outbox = Outbox(store)
        preparations = self._register()
        approval_store = ApprovalStore(store, clock.now())
        rules = RuleDecisions(
            (),
            approval_store,
            clock,
            vm_name=lambda: self.name,
            acknowledged=lambda *_: True,
        )
        approvals = Approvals(
            self._current,
            approval_store,
            self.imds,  # type: ignore[arg-type]  # it answers as a client does
            clock,
            rules=rules,
            trust=Trust(self._trust),
            preparations=preparations,
        )
        self._worker = ApprovalWorker(approvals, monotonic=clock.monotonic)
        self._worker.confirm()
        if reset is not None:
            store.commit([bridge_records.store_reset(self._observer, clock.now(), reset)])
        started = bridge_records.started(
            self._observer,
            clock.now(),
            sinks=["console"],
            restarted=False,
            gap_seconds=None,
            prepares=self.prepares,
        )
        store.commit([started])
        self._heartbeat_at = clock.monotonic()
        self.line.break_off()
        self._shown: tuple[PendingEvent, ...] | None = None

    def _register(self) -> Preparations | None:
        """Name the sinks to the outbox; return the preparations if the VM prepares."""
        console = Recipient(kind="mqtt")
        if not self.prepares:
            self._outbox.register({"console": console})
            return None
        spec = PreparingSpec(sink="drain", kind="program", lead=120.0)
        preparations = Preparations(spec, self._store, self._current, self._clock)
        self._current.preparation = preparations.state_of
        self._current.prepares = True
        self._sink = PreparingSink(self.program, preparations)
        drain = Recipient(kind="program", prepares=True, accepts=self._sink.accepts)
        self._outbox.register({"drain": drain, "console": console})
        preparations.adopt(self._outbox)
        return preparations

    def restart(self) -> None:
        """End the run, and begin another one."""
        self._simulation.log(f"{self.name}: restarts")
        self._store.close()
        self._begin()

    def lose_store(self) -> None:
        """End the run, lose the store's file or find it damaged, and begin another run."""
        self._store.close()
        file = self._directory / FILE_NAME
        is_damaged = self._simulation.random.random() < 0.5
        self._simulation.log(f"{self.name}: store {'damaged' if is_damaged else 'lost'}")
        for suffix in ("", "-wal", "-shm"):
            file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
        if is_damaged:
            file.write_bytes(b"garbage" * 200)
        self.has_lost_store = True
        self.program.prepared.clear()  # it is to prepare again
        self._begin()

    def go_down(self, seconds: float) -> None:
        """Crash; the machine boots after so many seconds."""
        self._simulation.log(f"{self.name}: down for {seconds:.0f} s")
        self.is_up = False
        self.back_at = self._simulation.now + seconds
        self._store.close()
        self.line.break_off()

    def boot(self) -> None:
        """Boot the machine, and begin a run."""
        self._simulation.log(f"{self.name}: up")
        self.is_up = True
        self._boot += 1
        self._clock.boot()
        self._begin()

    def freeze(self, seconds: float) -> None:
        """Stand still for so many seconds, while time goes on."""
        self._simulation.log(f"{self.name}: frozen for {seconds:.0f} s")
        self.frozen_until = self._simulation.now + seconds
        if seconds > HEARTBEAT_SECONDS:
            self.line.break_off()

    def remove(self) -> None:
        """Close and remove the store, at the end of a simulation."""
        if self.is_up:
            self._store.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def is_active(self) -> bool:
        """Whether the bridge runs now."""
        return self.is_up and self._simulation.now >= self.frozen_until

    # What its threads do

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.advance(seconds)

    def poll(self) -> None:
        """Poll IMDS, and follow what has changed."""
        self._worker.note_poll(answered=self._poller.run())
        self.work()

    def work(self) -> None:
        """Let the thread of the approvals do what it can."""
        for _ in range(4):
            if self._worker.has_work:
                self._worker.run_once()

    def receive(self) -> bool:
        """Take the commands that have come; return whether there were any."""
        if not self.line.is_whole:
            return False
        taken = self.line.received()
        for each in taken:
            self._simulation.log(f"{self.name}: gets {each.command.act} {each.command.event_id}")
            self._worker.command(CommandMessage(token=each.token, channel="console"))
        self.work()
        return bool(taken)

    def run_program(self, answer: str = "ok") -> bool:
        """Give the program its next record; return whether it was settled."""
        batch = self._outbox.next("drain", 1) if self.prepares else None
        if batch is None:
            return False
        self.program.answer = answer
        try:
            self._sink.deliver(batch.records)
        except SinkRejected as refused:
            self._outbox.mark_dead(
                "drain",
                batch.records[0].sequence,
                reason=str(refused),
                attempts=1,
                now=self._clock.now(),
                again=batch.again,
            )
        except SinkError:
            return False
        else:
            self._outbox.move_past("drain", batch)
        self.work()
        return True

    def beat(self) -> None:
        """Record a heartbeat if one is due."""
        since = self._clock.monotonic() - self._heartbeat_at
        if 0 <= since < HEARTBEAT_SECONDS:
            return
        self._heartbeat_at = self._clock.monotonic()
        heartbeat = bridge_records.heartbeat(
            self._observer,
            self._clock.now(),
            interval=HEARTBEAT_SECONDS,
            polled_at=self._current.gaps.polled_at,
            pending=len(self._current.pending()),
            last_sequence=self._store.last_record_sequence,
            prepares=self.prepares,
        )
        self._store.commit([heartbeat])

    # What it sends

    def publish(self, *, state_first: bool) -> None:
        """Send what is new; the state may overtake the records, as it has its own topic."""
        if not self.line.is_whole:
            return
        if not self.line.is_connected:
            self.line.connect()
            self._shown = None
            if not self.line.is_pull:
                self.line.put("status", self._status(None))
        if state_first:
            self._publish_state()
        while (batch := self._outbox.next("console", 50)) is not None:
            for record in batch.records:
                self.line.put("record", record.body)
            self._outbox.move_past("console", batch)
        self._publish_state()

    def _publish_state(self) -> None:
        pending = tuple(self._current.pending())
        is_known = bool(pending) or self._current.gaps.has_polled()
        if self.line.is_pull or not is_known or pending == self._shown:
            return
        self._shown = pending
        where = topics_of(site="default", vm_id=self.vm_id)
        now = self._clock.now()
        message = state_message(pending, context=self._context(), now=now, where=where)
        self.line.put("state", message.payload)

    def publish_will(self) -> None:
        """Have the broker publish the will of the last connection."""
        self.line.put("status", self._status("lost"), at_once=True)

    def is_of_earlier_run(self, kind: Kind, payload: bytes) -> bool:
        """Check whether a message is a status of an earlier run of the bridge. One of this run does
        not come behind a later one: a broker that has lost the later one gets it again, as the
        bridge connects again.
        """
        return kind == "status" and self._run_id.encode() not in payload

    def _status(self, reason: str | None) -> bytes:
        message = status_message(
            reason,
            context=self._context(),
            where=topics_of(site="default", vm_id=self.vm_id),
            sink="console",
            commands=True,
            is_will=reason is not None,
        )
        return message.payload

    def _context(self) -> SinkContext:
        return SinkContext(
            identity=self._identity,
            now=self._clock.now,
            version=_VERSION,
            instance_id=self._run_id,
            pending=self._current.pending,
            has_polled=self._current.gaps.has_polled,
            prepares=self.prepares,
        )

    @property
    def _run_id(self) -> str:
        return f"run-{self.name}-{self._runs}"

    def _identity(self) -> VmIdentity:
        return VmIdentity(
            vm_id=self.vm_id,
            name=self.name,
            resource_id=(
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
                f"/virtualMachines/{self.name}"
            ),
            subscription_id="s",
            resource_group="g",
            location="westeurope",
            zone=self.zone,
        )

    # What its program does

    def begins(self, event_id: str, fingerprint: str) -> None:
        """Tell the oracle that the program begins to prepare."""
        cause = self._cause_of(event_id)
        state = fingerprint[-4:]
        self._simulation.log(
            f"{self.name}: program prepares for {event_id} {state}, asked by {cause}: "
            f"{self.program.answer}"
        )
        if fingerprint in self.program.prepared.get(event_id, ()):
            text = f"{self.name} prepares for one state of {event_id} a second time"
            raise self._simulation.violation(text)
        if cause != "deadline":
            self._oracle.goes_away(self.name, event_id, "prepares")

    def recovers(self, event_id: str) -> None:
        """Tell the oracle that the program has come back."""
        self._simulation.log(f"{self.name}: program recovers from {event_id}")
        self._oracle.recovers(self.name, event_id)

    def _cause_of(self, event_id: str) -> str:
        """Return what the VM's own records say of who asked for its preparation: `command`,
        `approval` or `deadline`.
        """
        rows = self._store.read("SELECT body FROM records ORDER BY sequence DESC")
        for (sealed,) in rows:
            record = read_record(sealed)
            if record.type == PREPARATION and record.data["evt"] == event_id:
                return str(record.data["cause"]).partition(":")[0]
        return "nobody"
