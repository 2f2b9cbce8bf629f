"""The parts of a running bridge, made from its settings and connected. It starts nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.api.status import Running
from bridge.approval.approvals import Approvals
from bridge.approval.rule_decisions import Acknowledged, RuleDecisions
from bridge.approval.trusted_keys import Trust
from bridge.approval.worker import ApprovalWorker
from bridge.clock import Clock
from bridge.config.load import SinkSpec, preparing_sink
from bridge.config.settings import Settings
from bridge.delivery.dispatcher import DeadLetter, Dispatcher, MakeSink, make_sink
from bridge.events import bridge_records
from bridge.events.poller import Poller, PollResult
from bridge.events.state import CurrentState
from bridge.imds.client import Imds
from bridge.preparation.open_preparations import PreparingSpec
from bridge.preparation.preparations import Preparations
from bridge.preparation.sink import PreparingSink
from bridge.store.approvals import ApprovalStore, approved_revisions
from bridge.store.database import Store
from bridge.store.outbox import Outbox
from bridge.version import __version__
from sinks.backoff import URGENT_NOTICE_SECONDS
from sinks.base import Sink, SinkContext
from sinks.shared.logs import Redactor
from wire.observer import BridgeRun, Node, Observer
from wire.record import Record, RecordDraft
from wire.vm import VmIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that work together while the bridge runs."""

    outbox: Outbox
    store: Store
    current: CurrentState
    poller: Poller
    approvals: Approvals
    approval_worker: ApprovalWorker
    dispatcher: Dispatcher

    @property
    def running(self) -> Running:
        """The parts that the API and the metrics show."""
        return Running(
            current=self.current,
            store=self.store,
            outbox=self.outbox,
            dispatcher=self.dispatcher,
            refusals_by_reason=lambda: self.approvals.refusals_by_reason,
            trust_trouble=lambda: self.approvals.trust_trouble,
        )


def assemble(
    settings: Settings,
    sinks: Sequence[SinkSpec],
    store: Store,
    *,
    vm: VmIdentity,
    imds: Imds,
    clock: Clock,
    boot_id: str | None,
    redact: Redactor,
    on_poll: Callable[[PollResult], None],
    on_delivered: Callable[[str, Sequence[float]], None],
) -> Parts:
    """Make the parts. Raises `StoreError` if stored values cannot be read."""
    outbox = Outbox(store)
    current = _current_state(
        settings, store, vm, clock, boot_id=boot_id, api_version=imds.api_version
    )
    preparations = _preparations(sinks, store, current, clock)
    approvals = _approvals(
        settings,
        store,
        current,
        imds=imds,
        clock=clock,
        acknowledged=_acknowledged(outbox, current, preparations),
        preparations=preparations,
    )
    approval_worker = ApprovalWorker(approvals)
    poller = Poller(
        imds,
        store,
        current,
        clock,
        scope_self=settings.scope == "self",
        boot_id=boot_id,
        approved=lambda: approved_revisions(store),
        on_poll=_and_wake(on_poll, approval_worker),
    )
    dispatcher = Dispatcher(
        sinks,
        outbox,
        _context(settings, current, approval_worker, clock, prepares=preparations is not None),
        clock,
        urgent=lambda: current.urgent(URGENT_NOTICE_SECONDS),
        dead_letter=_dead_letters(current, clock),
        redact=redact,
        on_delivered=on_delivered,
        make=_make(preparations),
    )
    if preparations is not None:
        preparations.adopt(outbox)
    store.subscribe(lambda _: dispatcher.wake())
    return Parts(
        outbox=outbox,
        store=store,
        current=current,
        poller=poller,
        approvals=approvals,
        approval_worker=approval_worker,
        dispatcher=dispatcher,
    )


def _and_wake(
    on_poll: Callable[[PollResult], None], approval_worker: ApprovalWorker
) -> Callable[[PollResult], None]:
    """Return a callback for the end of each poll, even a failed one, that wakes the approvals: a
    command may have expired.
    """

    def ended(poll: PollResult) -> None:
        on_poll(poll)
        approval_worker.note_poll(answered=poll.answered)

    return ended


def _context(
    settings: Settings,
    current: CurrentState,
    approval_worker: ApprovalWorker,
    clock: Clock,
    *,
    prepares: bool,
) -> SinkContext:
    return SinkContext(
        identity=lambda: current.vm,
        now=clock.now,
        site=settings.site,
        version=__version__,
        instance_id=current.observer.bridge.instance_id,
        pending=current.pending,
        has_polled=current.gaps.has_polled,
        time_of=current.time_of_key,
        command=approval_worker.command,
        verifies=lambda: approval_worker.verifies,
        prepares=prepares,
    )


def _current_state(
    settings: Settings,
    store: Store,
    vm: VmIdentity,
    clock: Clock,
    *,
    boot_id: str | None,
    api_version: str,
) -> CurrentState:
    configured = settings.node
    in_a_cluster = configured.cluster or configured.node or configured.pod
    observer = Observer(
        vm=vm,
        node=Node(cluster=configured.cluster, node=configured.node, pod=configured.pod)
        if in_a_cluster
        else None,
        bridge=BridgeRun(version=__version__, instance_id=str(uuid.uuid4()), site=settings.site),
    )
    return CurrentState.after(
        store.last_seen(),
        observer,
        clock,
        interval=settings.poll_interval,
        boot_id=boot_id,
        api_version=api_version,
    )


def _approvals(
    settings: Settings,
    store: Store,
    current: CurrentState,
    *,
    imds: Imds,
    clock: Clock,
    acknowledged: Acknowledged,
    preparations: Preparations | None,
) -> Approvals:
    approval_store = ApprovalStore(store, clock.now())
    rules = RuleDecisions(
        settings.approval.rules,
        approval_store,
        clock,
        vm_name=lambda: current.vm.name,
        acknowledged=acknowledged,
    )
    return Approvals(
        current,
        approval_store,
        imds,
        clock,
        rules=rules,
        trust=Trust(settings.approval.trust),
        preparations=preparations,
    )


def _preparations(
    sinks: Sequence[SinkSpec], store: Store, current: CurrentState, clock: Clock
) -> Preparations | None:
    """Return the preparations of the sink that prepares this VM; None if no sink does."""
    found = preparing_sink(sinks)
    if found is None:
        return None
    name, settings = found
    spec = PreparingSpec(sink=name, kind=settings.kind, lead=settings.lead)
    preparations = Preparations(spec, store, current, clock)
    current.preparation = preparations.state_of
    current.prepares = True
    return preparations


def _acknowledged(
    outbox: Outbox, current: CurrentState, preparations: Preparations | None
) -> Acknowledged:
    """Return the function that says whether the sink of a rule's `after` has acknowledged an
    event.
    """
    prepares = None if preparations is None else preparations.spec.sink

    def acknowledged(sink: str, event: str) -> bool:
        if sink != prepares:
            return outbox.has_acknowledged(sink, event)
        # This sink gets an event only once an approval waits for it, and the approval waits for it
        # anyway; of an event that does not name this VM it gets nothing.
        tracked = current.events.get(event)
        return tracked is not None and tracked.affects_this_vm

    return acknowledged


def _make(preparations: Preparations | None) -> MakeSink:
    """Return the function that makes each sink; the one that prepares is wrapped."""

    def make(spec: SinkSpec, context: SinkContext) -> Sink[Any]:
        sink = make_sink(spec, context)
        if preparations is None or spec.name != preparations.spec.sink:
            return sink
        return PreparingSink(sink, preparations)

    return make


def _dead_letters(current: CurrentState, clock: Clock) -> DeadLetter:
    def dead_letter(sink: str, record: Record, reason: str, attempts: int) -> RecordDraft:
        return bridge_records.dead_letter(
            current.observer,
            clock.now(),
            sink=sink,
            record=record,
            reason=reason,
            attempts=attempts,
        )

    return dead_letter
