"""The sink for a node: shows what is coming where Kubernetes people look, and drains if asked."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sinks.base import Check, Sink, SinkContext, SinkError, SinkRejected, SinkSettings
from sinks.kubernetes.check import look_at
from sinks.kubernetes.conflict import ConflictError
from sinks.kubernetes.marks import Mark, Marks, condition_patch, patch_of, read_marks
from sinks.kubernetes.pods import is_leaving, name_of, to_evict
from sinks.kubernetes.settings import KubernetesSettings
from wire.moment import rfc3339
from wire.record import EVENT_ENDED, EVENT_STARTED, Record

if TYPE_CHECKING:
    from sinks.kubernetes.api import Api

NODE_VARIABLE: Final = "SEB_NODE__NODE"
_TRIES: Final = 5
"""How often a change of the node is tried if others change it at the same time."""
_PASS_SECONDS: Final = 20.0
"""How long one delivery waits for pods to leave; then the dispatcher calls again."""
_LOOK_SECONDS: Final = 1.0
_RECONCILE_SECONDS: Final = 300.0
"""How often a node without marks is looked at."""
_RENEW_SECONDS: Final = 600.0
"""How long one token is used: Kubernetes replaces the file before it ends."""


class KubernetesSink(Sink[KubernetesSettings]):
    """A node of a cluster, the bridge's own and no other.

    `scheduled`, `updated` and `started` of an event that names this VM set the node's condition
    `ScheduledEvent` and, if asked, taint, cordon and drain it; `ended` takes all of it back.
    Every record becomes a Kubernetes Event about the node, named by the record's id. A delivery is
    acknowledged once all that was asked for is done. With `PREPARES` an event is shown from its
    announcement on, and taint, cordon and drain begin when the sink is asked to prepare.
    """

    KIND: ClassVar[str] = "kubernetes"
    Settings: ClassVar[type[SinkSettings]] = KubernetesSettings
    BATCH: ClassVar[int] = 20

    def __init__(self, name: str, settings: KubernetesSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._api: Api | None = None
        self._made_at = 0.0
        self._looked_at = 0.0
        self._marks: Marks | None = None
        """What this run has put on the node; None before it has read the node."""
        self._uid: str | None = None
        self._shown: set[str] = set()
        """The ids of records that are shown and not acknowledged yet."""
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
        """Seconds; a pass of a drain ends before that."""
        return _PASS_SECONDS + 4 * self.settings.timeout

    @property
    def wants_heartbeats(self) -> bool:
        """No: a heartbeat is no news about the node."""
        return False

    def open(self) -> None:
        """See that the node is there. Raises `SinkError`."""
        self._connect().node()

    def deliver(self, records: Sequence[Record]) -> None:
        """Bring the node to each record in turn. Raises `SinkError` or `SinkRejected`."""
        # All is shown before the first drain, which may wait for long. A record is shown once, so
        # that a drain which is tried again does not close a node that somebody has opened.
        for record in records:
            if record.id not in self._shown:
                self._show(record, is_asked=True)
                self._shown.add(record.id)
        for number, record in enumerate(records):
            try:
                self._drain_for(record, records[number + 1 :])
            except SinkError as error:
                raise SinkError(
                    error.problem, retry_after=error.retry_after, delivered=number
                ) from None
            except SinkRejected as refused:
                self._shown.discard(record.id)
                raise SinkRejected(str(refused), delivered=number) from None
            self._shown.discard(record.id)

    def announce(self, record: Record) -> None:
        """Show an event for which the sink has not been asked to prepare. Raises `SinkError`."""
        self._show(record, is_asked=False)

    def maintain(self) -> None:
        """Take back the marks of events that are not pending any more. Raises `SinkError`.

        They are left by a run whose store was lost, and by a VM that was replaced by another under
        the same name. A node that was made again gets the marks of its pending events again.
        """
        now = time.monotonic()
        if now - self._made_at > _RENEW_SECONDS:
            self._disconnect()
        is_quiet = self._marks is not None and not self._marks.events
        if is_quiet and now - self._looked_at < _RECONCILE_SECONDS:
            return
        self._looked_at = now
        pending = {each.event.key for each in self.context.pending() if each.affects_this_vm}
        vm_id = self.context.vm.vm_id
        self._change(lambda marks: marks.only(frozenset(pending), vm_id))

    def check(self) -> Sequence[Check]:
        """Whether the node is there and ours, and what the service account may do."""
        try:
            api = self._make_api()
        except SinkError as error:
            return [Check.problem(error.problem, "see NODE and KUBECONFIG")]
        try:
            return list(look_at(api, self.node, self.settings, self.context.vm))
        finally:
            api.close()

    def abort(self) -> None:
        """Cut a request that is stuck, and the wait for pods."""
        self._aborted.set()
        api = self._api
        if api is not None:
            api.close()

    def close(self) -> None:
        """Close the connections; the marks stay on the node."""
        self._disconnect()

    def _show(self, record: Record, *, is_asked: bool) -> None:
        """Bring the node to the record, but for its pods, and write the record's Event."""
        event_id = record.event_id
        if event_id is not None and _is_over(record):
            self._change(lambda marks: marks.without(event_id))
        elif event_id is not None:
            mark = self._mark(record)

            def change(marks: Marks) -> Marks:
                # An event that the sink was asked about goes on to act when it changes.
                acts = mark.acts if is_asked else marks.acts_for(event_id)
                return marks.with_event(event_id, replace(mark, acts=acts))

            self._change(change, is_new=is_asked)
        self._note(record)

    def _drain_for(self, record: Record, later: Sequence[Record]) -> None:
        event_id = record.event_id
        if event_id is None or not self.settings.drain or _is_over(record):
            return
        mark = self._mark(record)
        # A newer record of the event says until when, or that it is over.
        is_newest = not any(each.event_id == event_id for each in later)
        if mark.acts and record.type != EVENT_STARTED and is_newest:
            self._drain(mark)

    def _mark(self, record: Record) -> Mark:
        event = record.data["event"]
        is_due = event.get("eventStatus") in ("Scheduled", "Started")
        return Mark(
            event_type=event.get("eventType") or "ScheduledEvent",
            not_before=event.get("notBefore"),
            acts=is_due and record.data.get("impact") in self.settings.impacts,
            vm_id=self.context.vm.vm_id,
        )

    def _change(self, change: Callable[[Marks], Marks], *, is_new: bool = False) -> None:
        """Bring the node to the changed marks: spec and annotation in one request, then status."""
        api = self._connect()
        for _ in range(_TRIES):
            node = api.node()
            uid = node["metadata"].get("uid")
            # A node that was made again has none of our marks, and is open again.
            is_other = self._uid is not None and uid != self._uid
            before = _marks_on(node)
            if is_other and self._marks is not None:
                before = replace(self._marks, cordoned=False)
            marks = change(before)
            patch = patch_of(
                node,
                marks,
                taint=self.settings.taint,
                cordon=self.settings.cordon or self.settings.drain,
                is_new=is_new or is_other,
            )
            try:
                node = node if patch is None else api.patch(patch)
                status = condition_patch(node, marks, now=rfc3339(self.context.now()))
                if status is not None:
                    api.patch_status(status)
            except ConflictError:
                continue
            self._uid, self._marks = uid, _marks_on(node)
            return
        raise SinkError("others change the node all the time", retry_after=1.0)

    def _note(self, record: Record) -> None:
        """Write the Kubernetes Event of the record."""
        transition = record.type.removeprefix("seb.").removesuffix(".v1")
        reason = "".join(word.capitalize() for word in transition.replace("-", ".").split("."))
        event = record.data.get("event") or {}
        uid = self._uid or self._connect().node()["metadata"].get("uid", "")
        self._connect().add_event(
            f"{self.node}.{record.id}",
            uid=uid,
            reason=reason[:128],
            message=_sentence(record),
            at=record.time,
            warning=record.type != EVENT_ENDED and event.get("eventStatus") == "Scheduled",
            record=record.body.decode(),
        )

    def _drain(self, mark: Mark) -> None:
        """Evict the pods. Raises `SinkError` while some are left, `SinkRejected` if time is up."""
        until = time.monotonic() + _PASS_SECONDS
        api = self._connect()
        while pods := to_evict(api.pods()):
            if not self._is_late(mark):
                blocked = [pod for pod in pods if not is_leaving(pod) and not api.evict(pod)]
            elif self.settings.force:
                blocked = []
                for pod in pods:
                    if not is_leaving(pod):
                        api.delete(pod)
            else:
                names = ", ".join(sorted(map(name_of, pods))[:5])
                raise SinkRejected(
                    f"{len(pods)} pods are still on the node, and FORCE is not set: {names}"
                )
            if time.monotonic() >= until or self._aborted.wait(_LOOK_SECONDS):
                raise _still_there(pods, blocked)

    def _is_late(self, mark: Mark) -> bool:
        """Whether disruption budgets are not honoured any more."""
        if mark.not_before is None:
            return True
        left = datetime.fromisoformat(mark.not_before) - self.context.now()
        return left <= timedelta(seconds=self.settings.budgets_until)

    def _connect(self) -> Api:
        if self._api is None:
            self._api = self._make_api()
            self._made_at = time.monotonic()
        return self._api

    def _make_api(self) -> Api:
        """A way to the API server. Raises `SinkError`, also if the extra is not installed."""
        try:
            from sinks.kubernetes.api import Api  # noqa: PLC0415  # an extra: few sinks need it
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


def _marks_on(node: Mapping[str, Any]) -> Marks:
    return read_marks(node["metadata"].get("annotations"))


def _is_over(record: Record) -> bool:
    """Whether the event is over for this VM."""
    return record.type == EVENT_ENDED or record.affects_this_vm is False


def _still_there(
    pods: Sequence[Mapping[str, Any]], blocked: Sequence[Mapping[str, Any]]
) -> SinkError:
    names = ", ".join(sorted(map(name_of, blocked or pods))[:5])
    if blocked:
        what = f"{len(blocked)} pods are held by a disruption budget: {names}"
    else:
        what = f"{len(pods)} pods are still leaving: {names}"
    return SinkError(what, retry_after=1.0)


def _sentence(record: Record) -> str:
    event = record.data.get("event")
    if not event:
        return record.type
    words = [f"{event.get('eventType')} {event.get('eventStatus')}"]
    if event.get("notBefore"):
        words.append(f"not before {event['notBefore']}")
    if event.get("durationInSeconds") not in (None, -1):
        words.append(f"for about {event['durationInSeconds']} s")
    if event.get("description"):
        words.append(str(event["description"]))
    return f"{', '.join(words)} (event {event.get('eventId')})"
