"""The requests that a command on this machine can send to the bridge, in JSON both ways."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

from bridge.api.control import ControlError
from bridge.approval.worker import ApprovalWorker
from bridge.config.load import SinkSpec
from bridge.config.settings import Settings
from bridge.delivery.dispatcher import Dispatcher, make_sink, recipients
from bridge.delivery.health import Health
from bridge.events.state import CurrentState
from bridge.store.approvals import Act, Approval
from bridge.store.database import Store, StoreError
from bridge.store.outbox import Backlog, Outbox
from bridge.store.recipient import Recipient
from sinks.base import SinkContext
from wire.moment import rfc3339
from wire.vm import VmIdentity

APPROVE_SECONDS: Final = 15.0
"""How long a person's approval may take until IMDS has answered."""

MAX_TEXT: Final = 512


class ControlRequests:
    """Answers requests about the outbox, about pending events, and to approve one."""

    def __init__(
        self,
        outbox: Outbox,
        dispatcher: Dispatcher | None = None,
        current: CurrentState | None = None,
        approval_worker: ApprovalWorker | None = None,
        *,
        starting: Callable[[], str | None] = lambda: None,
        store_trouble: Callable[[], str | None] = lambda: None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`starting`: what the bridge waits for; `store_trouble`: why it cannot commit; `settings`:
        as `shown_settings` returns them.
        """
        self._outbox = outbox
        self._dispatcher = dispatcher
        self._current = current
        self._approval_worker = approval_worker
        self._starting = starting
        self._store_trouble = store_trouble
        self._settings = settings
        self._monotonic = monotonic
        self._handlers: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "outbox.list": self._list,
            "outbox.retry": self._retry,
            "outbox.drop": self._drop,
            "settings": lambda _: dict(self._settings),
            "pending": self._pending,
            "approve": partial(self._accept, act="approve"),
            "prepare": partial(self._accept, act="prepare"),
            "approval": self._approval,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises `ControlError` on one that cannot be
        carried out.
        """
        asked = request.get("ask")
        if asked in ("pending", "approve", "prepare") and (starting := self._starting()):
            raise ControlError(f"the bridge is starting: {starting}; try again")
        handler = self._handlers.get(str(asked))
        if handler is None:
            raise ControlError(
                f"the running bridge does not know {asked!r}: it may be an older version"
            )
        return handler(request)

    def _pending(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        if self._current is None:
            return {"vm": None, "events": []}
        events = [event.to_wire() for event in self._current.pending()]
        return {"vm": self._current.vm.name, "events": events}

    def _approval(self, request: Mapping[str, Any]) -> dict[str, Any]:
        jti = _text(request, "jti") or ""
        approval = self._approval_worker.find(jti) if self._approval_worker else None
        if approval is None:
            raise ControlError(f"no approval {jti} is known here")
        return _step(approval)

    def _accept(self, request: Mapping[str, Any], *, act: Act) -> dict[str, Any]:
        if self._approval_worker is None:
            raise ControlError("no bridge is running here, and an approval needs one")
        try:
            approval = self._approval_worker.local(
                _text(request, "event") or "",
                user=_text(request, "user") or "unknown",
                fingerprint=_text(request, "fingerprint"),
                person_reason=_line(request, "why"),
                seconds=APPROVE_SECONDS,
                act=act,
            )
        except (LookupError, TimeoutError, StoreError) as error:
            raise ControlError(str(error) or type(error).__name__) from error
        return _step(approval)

    def _list(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        sinks = [self._line(name, active=active) for name, active in self._known_sinks().items()]
        return {
            "trouble": self._store_trouble(),
            "sinks": sinks,
            "dead": [each._asdict() for each in self._outbox.dead.shown()],
        }

    def _known_sinks(self) -> dict[str, bool]:
        """Return for each sink that the store knows whether it is configured. While the bridge
        starts, its own sinks are among them.
        """
        known = self._outbox.known_sinks()
        return known | dict.fromkeys(self._outbox.recipients, True) if self._starting() else known

    def _line(self, name: str, *, active: bool) -> dict[str, Any]:
        running = self._dispatcher if active else None
        recipient = self._outbox.recipients.get(name)
        line = sink_line(
            name,
            recipient=recipient,
            configured=active,
            health=running.health[name] if running else None,
            backlog=self._outbox.backlog(name),
            now=self._monotonic(),
        )
        if active and (starting := self._starting()):
            return {**line, "state": "starting", "reason": starting}
        return line

    def _retry(self, request: Mapping[str, Any]) -> dict[str, Any]:
        sink = self._sink(request)
        count = self._outbox.retry(sink, _sequences(request))
        resumed = False
        if self._dispatcher is not None and sink in self._dispatcher.health:
            resumed = self._dispatcher.health[sink].state in ("paused", "failing")
            self._dispatcher.resume(sink)
        return {"records": count, "resumed": resumed}

    def _drop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"records": self._outbox.dead.drop(self._sink(request), _sequences(request))}

    def _sink(self, request: Mapping[str, Any]) -> str:
        name = str(request.get("sink"))
        known = self._outbox.known_sinks()
        if name not in known:
            raise ControlError(
                f"there is no sink {name}; the sinks are: {', '.join(known) or 'none'}"
            )
        return name


def shown_settings(settings: Settings, specs: Sequence[SinkSpec]) -> dict[str, Any]:
    """Return the settings of the bridge that a command on this machine may see."""
    imds = {"url": settings.imds.url, "apiVersion": settings.imds.api_version}
    return {"imds": imds, "sinks": [spec.name for spec in specs]}


def starting_requests(
    store: Store, settings: Settings, specs: Sequence[SinkSpec], now: Callable[[], datetime]
) -> ControlRequests:
    """Return the object that answers requests while the bridge waits for the VM identity."""
    unknown = VmIdentity(vm_id="", name="")
    context = SinkContext(identity=lambda: unknown, now=now)
    return ControlRequests(
        Outbox(store, recipients(make_sink(each, context) for each in specs)),
        starting=lambda: "waiting for the VM identity from IMDS",
        settings=shown_settings(settings, specs),
    )


def _step(approval: Approval) -> dict[str, Any]:
    """Return the newest step of an approval, in the words of its receipt."""
    return {
        "jti": approval.jti,
        "state": approval.state,
        "reason": approval.reason,
        "rsn": approval.person_reason,
    }


def _line(request: Mapping[str, Any], name: str) -> str | None:
    """Return a text of a request in one line, as it is shown in receipts and logs."""
    value = _text(request, name)
    if value is None or (value and value.isprintable()):
        return value
    raise ControlError(f"{name} is one line of printable characters")


def _text(request: Mapping[str, Any], name: str) -> str | None:
    value = request.get(name)
    if value is None or (isinstance(value, str) and len(value) <= MAX_TEXT):
        return value
    raise ControlError(f"{name} is a text of at most {MAX_TEXT} characters")


def _sequences(request: Mapping[str, Any]) -> list[int] | None:
    """Return the numbers of the dead records that a request names; None for all of the sink's."""
    named = request.get("sequences")
    if named is None or (isinstance(named, list) and all(type(each) is int for each in named)):
        return named
    raise ControlError("sequences is a list of numbers, or nothing for all")


def sink_line(
    name: str,
    *,
    recipient: Recipient | None,
    configured: bool,
    health: Health | None,
    backlog: Backlog | None,
    now: float,
) -> dict[str, Any]:
    """Return the entry of a sink in a list. `recipient`, `health`, `backlog`: None if not known;
    `now` is monotonic.
    """
    due = health.next_try_at if health else None
    return {
        "name": name,
        "kind": recipient.kind if recipient else None,
        "configured": configured,
        "prepares": recipient is not None and recipient.prepares,
        "state": health.state if health else None,
        "reason": health.reason if health else None,
        "backlog": backlog.records if backlog else None,
        "oldestPendingAt": backlog.oldest if backlog else None,
        "dead": backlog.dead if backlog else None,
        "delivered": health.delivered if health else None,
        "lastDeliveredAt": (
            rfc3339(health.delivered_at) if health and health.delivered_at else None
        ),
        "lagSeconds": round(health.lag, 3) if health and health.lag is not None else None,
        "nextTrySeconds": (
            None if due is None or not isfinite(due) else round(max(0.0, due - now), 1)
        ),
    }
