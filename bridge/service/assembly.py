"""The parts of a running bridge, made from its settings and joined. It starts nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.api.status import Running
from bridge.approval.approvals import Approvals
from bridge.approval.decisions import Decisions
from bridge.approval.ledger import Ledger
from bridge.approval.policy import rules_of
from bridge.approval.trusted_keys import Trust
from bridge.approval.worker import Approver
from bridge.clock import Clock
from bridge.config.load import SinkSpec
from bridge.config.settings import Settings
from bridge.delivery.dispatcher import DeadLetter, Dispatcher
from bridge.delivery.health import URGENT_NOTICE_SECONDS
from bridge.events import bridge_records
from bridge.events.normalize import Observer
from bridge.events.poller import Poller, Round
from bridge.events.state import CurrentState
from bridge.imds.client import Imds
from bridge.logs import Redactor
from bridge.store.approvals import approved_events
from bridge.store.database import Store
from bridge.store.outbox import Outbox
from bridge.version import __version__
from sinks.base import SinkContext
from sinks.record import EventRecord, RecordDraft, VmIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What works together while the bridge runs."""

    outbox: Outbox
    store: Store
    state: CurrentState
    poller: Poller
    approvals: Approvals
    approver: Approver
    dispatcher: Dispatcher

    @property
    def running(self) -> Running:
        """What the outside is shown of them."""
        return Running(
            state=self.state,
            store=self.store,
            outbox=self.outbox,
            dispatcher=self.dispatcher,
            refused=lambda: self.approvals.refused,
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
    polled: Callable[[Round], None],
    delivered: Callable[[str, Sequence[float]], None],
) -> Parts:
    """Make the parts. Raises `StoreError` where what is remembered cannot be read."""
    outbox = Outbox(store)
    state = _state(settings, store, vm, clock, boot_id=boot_id, api_version=imds.api_version)
    approvals = _approvals(settings, store, state, imds=imds, clock=clock, outbox=outbox)
    approver = Approver(approvals)
    poller = Poller(
        imds,
        store,
        state,
        clock,
        scope_self=settings.scope == "self",
        boot_id=boot_id,
        approved=lambda: approved_events(store),
        polled=_then(polled, approver),
    )
    dispatcher = Dispatcher(
        sinks,
        outbox,
        _context(settings, state, approver, clock),
        clock,
        urgent=lambda: state.urgent(clock.now(), URGENT_NOTICE_SECONDS),
        dead_letter=_dead_letters(state, clock),
        redact=redact,
        delivered=delivered,
    )
    store.subscribe(lambda _: dispatcher.wake())
    return Parts(
        outbox=outbox,
        store=store,
        state=state,
        poller=poller,
        approvals=approvals,
        approver=approver,
        dispatcher=dispatcher,
    )


def _then(polled: Callable[[Round], None], approver: Approver) -> Callable[[Round], None]:
    """After each poll that brought a document, the approver goes on."""

    def ended(poll: Round) -> None:
        polled(poll)
        if poll.answered:
            approver.polled()

    return ended


def _context(
    settings: Settings, state: CurrentState, approver: Approver, clock: Clock
) -> SinkContext:
    return SinkContext(
        identity=lambda: state.vm,
        now=clock.now,
        site=settings.site,
        version=__version__,
        instance_id=state.observer.instance_id,
        pending=state.pending,
        command=approver.command,
    )


def _state(
    settings: Settings,
    store: Store,
    vm: VmIdentity,
    clock: Clock,
    *,
    boot_id: str | None,
    api_version: str,
) -> CurrentState:
    observer = Observer(
        vm=vm,
        version=__version__,
        instance_id=str(uuid.uuid4()),
        site=settings.site,
        cluster=settings.node.cluster,
        node=settings.node.node,
        pod=settings.node.pod,
    )
    return CurrentState.after(
        store.seen(),
        observer,
        clock,
        interval=settings.poll_interval,
        scope_self=settings.scope == "self",
        boot_id=boot_id,
        api_version=api_version,
    )


def _approvals(
    settings: Settings,
    store: Store,
    state: CurrentState,
    *,
    imds: Imds,
    clock: Clock,
    outbox: Outbox,
) -> Approvals:
    ledger = Ledger(store, clock.now())
    rulings = Decisions(
        rules_of(settings.approval),
        ledger,
        clock,
        vm_name=state.vm.name,
        acknowledged=outbox.acknowledged,
    )
    return Approvals(
        state, ledger, imds, clock, rulings=rulings, trust=Trust(settings.approval.trust)
    )


def _dead_letters(state: CurrentState, clock: Clock) -> DeadLetter:
    def dead_letter(sink: str, record: EventRecord, reason: str, attempts: int) -> RecordDraft:
        return bridge_records.dead_letter(
            state.observer, clock.now(), sink=sink, record=record, reason=reason, attempts=attempts
        )

    return dead_letter
