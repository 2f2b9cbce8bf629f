"""The sink for a Kubernetes node: it shows coming events on the node, and drains it if told to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sinks.base import Check, Problem, Sink, SinkContext, SinkError, SinkRejected, SinkSettings
from sinks.kinds.kubernetes.check import check_node, require_own_node
from sinks.kinds.kubernetes.events import ROUND_SECONDS, NodeEvents
from sinks.kinds.kubernetes.marks import (
    ConflictError,
    Mark,
    Marks,
    condition_patch,
    marks_on,
    patch_of,
)
from sinks.kinds.kubernetes.pods import HELD, is_leaving, name_of, to_evict
from sinks.kinds.kubernetes.settings import KubernetesSettings
from wire.moment import moment_text, rfc3339
from wire.record import EVENT_SCHEDULED, EVENT_STARTED, Record
from wire.state import PendingEvent

if TYPE_CHECKING:
    from sinks.kinds.kubernetes.api import Api

NODE_VARIABLE: Final = "SEB_NODE__NODE"
_TRIES: Final = 5
"""How many times a change of the node is tried if others change it at the same time."""
_PASS_SECONDS: Final = 20.0
"""How long one delivery waits for pods to leave; after that the dispatcher calls again."""
_POD_POLL_SECONDS: Final = 1.0
_RECONCILE_SECONDS: Final = 300.0
"""How often a node without marks is checked."""
_RENEW_SECONDS: Final = 600.0
"""How long a token is used: Kubernetes replaces the file before the token expires."""
_ASKED: Final = ("preparing", "prepared", "failed")
"""The states of a preparation that was asked for."""


class KubernetesSink(Sink[KubernetesSettings]):
    """A node of a cluster, the bridge's own and no other.

    What stands on the node follows from the events that are pending for this VM, and not from the
    record that is delivered, which may be old: the condition `ScheduledEvent` and, if asked, taint,
    cordon and drain. Every record becomes a Kubernetes Event about the node, named by the record's
    id. A delivery is acknowledged once all that was asked for is done. With `PREPARES` an event is
    shown from its announcement on, and taint, cordon and drain begin when the sink is asked to
    prepare.
    """

    KIND: ClassVar[str] = "kubernetes"
    Settings: ClassVar[type[SinkSettings]] = KubernetesSettings
    BATCH: ClassVar[int] = 20

    def __init__(self, name: str, settings: KubernetesSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._api: Api | None = None
        self._made_at = 0.0
        self._reconciled_at = 0.0
        self._marks: Marks | None = None
        """The marks that the node had at the last reconciliation; None before the first."""
        self._uid = ""
        self._events = NodeEvents(may_wait=settings.prepares)
        self._aborted = threading.Event()

    @property
    def node(self) -> str:
        """The name of the node. Raises `SinkError` if no setting has it."""
        name = self.settings.node or os.environ.get(NODE_VARIABLE)
        if not name:
            raise SinkError(
                "the name of the node is not known",
                remedy=f"set NODE, or {NODE_VARIABLE} as the chart does",
            )
        return name

    @property
    def deadline(self) -> float:
        """Seconds; the Events of a delivery and one pass of a drain end before that."""
        return _PASS_SECONDS + 2 * ROUND_SECONDS + 8 * self.settings.timeout

    @property
    def wants_heartbeats(self) -> bool:
        """False: a heartbeat has no news about the node."""
        return False

    def open(self) -> None:
        """Check that the node exists and is this VM. Raises `SinkError`."""
        require_own_node(self._connect().node(), self.context.vm)

    def deliver(self, records: Sequence[Record]) -> None:
        """Make the node match the pending events. Raises `SinkError` or `SinkRejected`."""
        # All is shown before the first drain, which may wait for long, and an Event that cannot be
        # written holds up no drain.
        self._reconcile(records, is_asked=True)
        problem = self._events.write(self._connect(), records, uid=self._uid)
        written = self._events.count_done(records)
        for number, record in enumerate(records):
            try:
                self._drain_for(record, records[number + 1 :])
            except SinkError as error:
                raise _after(min(number, written), error) from None
            except SinkRejected as refused:
                if written < number:
                    break
                self._events.forget([record])
                raise SinkRejected(str(refused), delivered=number) from None
        self._events.forget(records[:written])
        if problem is not None:
            raise _after(written, problem)

    def announce(self, record: Record) -> None:
        """Show an event for which the sink has not been asked to prepare. Raises `SinkError`."""
        self._reconcile([record], is_asked=False)
        self._events.write(self._connect(), [record], uid=self._uid)
        self._events.forget([record])

    def maintain(self) -> None:
        """Make the node match the pending events. Raises `SinkError`.

        Marks of ended events remain from a run whose store was lost, and from a VM that was
        replaced by another under the same name. A Node object that was created again lacks the
        marks of pending events, and the run that put them there has ended with its pod.
        """
        now = time.monotonic()
        if now - self._made_at > _RENEW_SECONDS:
            self._disconnect()
        is_quiet = self._marks is not None and not (
            self._marks.events or self._coming() or self._events.are_missing
        )
        if is_quiet and now - self._reconciled_at < _RECONCILE_SECONDS:
            return
        self._reconciled_at = now
        self._reconcile([], is_asked=False)
        problem = self._events.write_missing(self._connect(), uid=self._uid)
        if problem is not None:
            raise problem

    def check(self) -> Sequence[Check]:
        """Check whether the node exists and is this VM, and what the service account may do."""
        try:
            api = self._make_api()
        except SinkError as error:
            return [Check.problem(error.problem, "see NODE and KUBECONFIG")]
        try:
            return list(check_node(api, self.node, self.settings, self.context.vm))
        finally:
            api.close()

    def abort(self) -> None:
        """Cut a stuck request, and end the wait for pods."""
        self._aborted.set()
        api = self._api
        if api is not None:
            api.close()

    def close(self) -> None:
        """Close the connections; the marks stay on the node."""
        self._disconnect()

    def _coming(self) -> Mapping[str, PendingEvent]:
        """Return the pending events to mark on the node, by key."""
        return {
            each.event.key: each
            for each in self.context.pending()
            if each.affects_this_vm and self._is_shown(each.event.event_status)
        }

    def _is_shown(self, status: str | None) -> bool:
        """Check whether `TYPES` allows an event of that status to be shown on the node."""
        return self.settings.prepares or any(
            self.accepts(each, concerns_this_vm=True)
            for each in (EVENT_SCHEDULED, *([EVENT_STARTED] if status == "Started" else []))
        )

    def _marks_after(
        self, before: Marks, asked: Collection[str] = (), over: Collection[str] = ()
    ) -> Marks:
        """Return the marks for what is pending now; `asked` and `over` are keys of events."""
        # Before IMDS has answered, an event may be pending that a new store does not know.
        going_on = {key: mark for key, mark in before.events.items() if key not in over}
        kept = {} if self.context.has_polled() else going_on
        coming = {
            key: Mark(
                event_type=each.event.event_type or "ScheduledEvent",
                not_before=moment_text(each.event.not_before),
                acts=self._acts_on(each, asked=key in asked and key not in over)
                or (self.settings.prepares and key in going_on and going_on[key].acts),
                vm_id=self.context.vm.vm_id,
            )
            for key, each in self._coming().items()
        }
        return replace(before, events={**kept, **coming})

    def _acts_on(self, pending: PendingEvent, *, asked: bool) -> bool:
        """Check whether the sink begins to act on an event. A sink that prepares waits until it is
        asked, also if the event is back after its end. Once it has acted, it goes on until the
        event ends, whatever the event changes to: the bridge counts the VM as prepared for a state
        that comes back.
        """
        if not self._needs_empty_node(pending):
            return False
        return not self.settings.prepares or asked or pending.preparation in _ASKED

    def _needs_empty_node(self, pending: PendingEvent) -> bool:
        """Check whether the event as it is now is one for which the node is to be emptied."""
        is_due = pending.event.event_status in ("Scheduled", "Started")
        return is_due and pending.impact in self.settings.impacts

    def _reconcile(self, records: Sequence[Record], *, is_asked: bool) -> None:
        """Make the node match the pending events, except for its pods: first spec and annotation in
        one request, then the status.
        """
        ids = {each.event_id.casefold(): each for each in records if each.event_id is not None}
        over = [key for key, newest in ids.items() if newest.is_end]
        api = self._connect()
        for _ in range(_TRIES):
            node = api.node()
            uid = node["metadata"].get("uid", "")
            marks = self._marks_after(marks_on(node), ids if is_asked else (), over)
            patch = patch_of(
                node,
                marks,
                taint=self.settings.taint,
                cordon=self.settings.cordon or self.settings.drain,
            )
            try:
                node = node if patch is None else api.patch(patch)
                status = condition_patch(node, marks, now=rfc3339(self.context.now()))
                if status is not None:
                    api.patch_status(status)
            except ConflictError:
                continue
            self._uid = uid
            self._marks = marks_on(node)
            return
        raise SinkError("other clients change the node all the time", retry_after=1.0)

    def _drain_for(self, record: Record, later: Sequence[Record]) -> None:
        event_id = record.event_id
        if event_id is None or not self.settings.drain or record.is_end:
            return
        # A newer record of the event says that it has started, or that it is over.
        is_newest = not any(each.event_id == event_id for each in later)
        if record.type != EVENT_STARTED and is_newest:
            self._drain(event_id.casefold())

    def _drain(self, key: str) -> None:
        """Evict the pods for an event. Raises `SinkError` while some are left, and `SinkRejected`
        once the event's time is up.
        """
        until = time.monotonic() + _PASS_SECONDS
        api = self._connect()
        while True:
            coming = self._coming()
            own = coming.get(key)
            marks = self._marks_after(self._marks or Marks())
            if own is None or own.event.event_status == "Started" or not marks.acts_for(key):
                return
            if not self._needs_empty_node(own):
                return  # it only keeps the node cordoned
            pods = to_evict(api.pods())
            if not pods:
                return
            if not (self.context.has_polled() or self._is_ahead(key, marks.events[key])):
                raise SinkError(
                    "IMDS has not said in this run whether the event is over", retry_after=1.0
                )
            # Another event may be nearer than the one for which budgets hold the pods.
            # A deletion cannot be taken back, so the wall clock must say so too: one that was ahead
            # when the event was first seen may have been set right since.
            now = self.context.now()
            by_force = self._may_force() and any(
                self._is_late(key, mark, latest=now)
                for key, mark in marks.events.items()
                if mark.acts and key in coming and self._needs_empty_node(coming[key])
            )
            held = self._remove(pods, by_force=by_force)
            if held and not self.settings.force and self._is_late(key, marks.events[key]):
                raise SinkRejected(
                    f"{len(held)} pods are still on the node, and FORCE is not set: {_few(held)}"
                )
            if time.monotonic() >= until or self._aborted.wait(_POD_POLL_SECONDS):
                raise _still_there(pods, held)

    def _remove(self, pods: Sequence[Mapping[str, Any]], *, by_force: bool) -> dict[str, Problem]:
        """Tell each pod to leave; return what prevents those that do not. A pod that cannot leave
        does not stop the others.
        """
        api = self._connect()
        until = time.monotonic() + ROUND_SECONDS
        held: dict[str, Problem] = {}
        for pod in pods:
            if is_leaving(pod):
                continue
            problem = api.delete(pod) if by_force else api.evict(pod)
            if problem is not None:
                held[name_of(pod)] = problem
            if time.monotonic() >= until:
                break
        return held

    def _may_force(self) -> bool:
        """Check whether pods may be deleted. An event of an earlier run must first be in a document
        of this run: it may be over, and a deletion cannot be taken back.
        """
        return self.settings.force and self.context.has_polled()

    def _is_late(self, key: str, mark: Mark, *, latest: datetime | None = None) -> bool:
        """Check whether it is too late to respect disruption budgets for the event of that key. It
        is not while the event's time is not known, because that may be far off. `latest`: the
        latest time that it may be now.
        """
        left = self._left(key, mark, latest=latest)
        return left is not None and left <= timedelta(seconds=self.settings.budgets_until)

    def _is_ahead(self, key: str, mark: Mark) -> bool:
        """Check whether the time of the event of that key is known and has not come yet."""
        left = self._left(key, mark)
        return left is not None and left > timedelta()

    def _left(self, key: str, mark: Mark, *, latest: datetime | None = None) -> timedelta | None:
        """Return the time until the event of that key may begin; None if that is not known. With
        `latest` the present time counts as no later than that.
        """
        if mark.not_before is None:
            return None
        now = self.context.time_of(key) or self.context.now()
        return datetime.fromisoformat(mark.not_before) - min(now, latest or now)

    def _connect(self) -> Api:
        if self._api is None:
            self._api = self._make_api()
            self._made_at = time.monotonic()
        return self._api

    def _make_api(self) -> Api:
        """Return a client of the API server. Raises `SinkError`, also if the extra is not
        installed.
        """
        try:
            from sinks.kinds.kubernetes.api import Api  # noqa: PLC0415  # an extra: few sinks need it
        except ImportError as error:
            raise SinkError(
                f"the client library for Kubernetes is missing: {error}",
                remedy="install scheduled-events-bridge[kubernetes]",
            ) from None
        return Api(self.node, kubeconfig=self.settings.kubeconfig, timeout=self.settings.timeout)

    def _disconnect(self) -> None:
        api = self._api
        self._api = None
        if api is not None:
            api.close()


def _after(delivered: int, error: SinkError) -> SinkError:
    """Return the same error for a batch whose first records are delivered."""
    return SinkError(
        error.problem,
        retry_after=error.retry_after,
        delivered=delivered,
        stays_open=error.stays_open,
    )


def _still_there(pods: Sequence[Mapping[str, Any]], held: Mapping[str, Problem]) -> SinkError:
    others = {name: problem for name, problem in held.items() if problem != HELD}
    if others:
        problem = next(iter(others.values()))
        what = f"{len(others)} pods cannot leave: {_few(others)}: {problem.what}"
        return SinkError(Problem(what, problem.remedy), retry_after=1.0, stays_open=True)
    if held:
        what = f"{len(held)} pods are {HELD.what}: {_few(held)}"
    else:
        what = f"{len(pods)} pods are still leaving: {_few(map(name_of, pods))}"
    return SinkError(what, retry_after=1.0, stays_open=True)


def _few(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:5])
