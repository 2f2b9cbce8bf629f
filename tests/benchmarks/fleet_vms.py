"""Some VMs of a fleet, as a program: for each the bridge's own worker with its own MQTT sink.

Run as `fleet_vms.py PORT FIRST COUNT`. It obeys one word a line: `start` (all at once), `event`
(one record for each, at once), `report` (what happened since the last report, as one line of JSON),
and ends with its input. What a VM has on its disk is a list here; nothing else is left out of the
way from record to broker.
"""

import json
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from bridge.clock import SystemClock
from bridge.delivery.health import Health
from bridge.delivery.worker import Worker
from bridge.store.batch import Batch
from sinks.base import SinkContext, SinkError
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.kinds.mqtt.sink import MqttSink
from sinks.samples import SAMPLE_VM, sample_bridge_record, sample_record
from sinks.shared.logs import Redactor
from wire.event import EventData
from wire.fields import read_object
from wire.record import BRIDGE_STARTED, Record
from wire.state import PendingEvent

Note = Callable[[str], None]
_EVENT: Final = "8C1B6D0A-0000-4B9B-9D1C-000000000001"
_STACK: Final = 256 * 1024
"""Bytes of stack per thread: two thousand of them must fit."""


class _TimedSink(MqttSink):
    """The sink, with a stopwatch beside it."""

    note: Note

    def open(self) -> None:
        self.note("tried")
        super().open()
        self.note("opened")

    def deliver(self, records: Sequence[Record]) -> None:
        super().deliver(records)
        self.note("delivered")

    def maintain(self) -> None:
        shown = self._state._shown
        try:
            super().maintain()
        except SinkError:
            self.note("lost")
            raise
        if self._state._shown is not shown:
            self.note("shown")


class _Outbox:
    """The records that a VM still has to send."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.waiting = list(records)

    def next(self, sink: str, limit: int) -> Batch | None:
        del sink
        some = tuple(self.waiting[:limit])
        return Batch(records=some, cursor=some[-1].sequence) if some else None

    def move_past(self, sink: str, batch: Batch, count: int | None = None) -> None:
        del sink
        del self.waiting[: len(batch.records) if count is None else count]


class _Vm:
    """One VM's outbox, worker and sink."""

    def __init__(self, number: int, port: int, note: Note) -> None:
        vm_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"vm {number}"))
        self.vm = replace(SAMPLE_VM, vm_id=vm_id, name=f"vm_{number}")
        self.pending: tuple[PendingEvent, ...] = ()
        self.outbox = _Outbox([sample_bridge_record(record_type=BRIDGE_STARTED, vm=self.vm)])
        clock = SystemClock()
        context = SinkContext(
            identity=lambda: self.vm,
            now=clock.now,
            version="1",
            instance_id=vm_id,
            pending=lambda: self.pending,
        )
        settings = MqttSettings(kind="mqtt", host="127.0.0.1", port=port)
        sink = _TimedSink("mqtt", settings, context)
        sink.note = note
        self.worker = Worker(
            sink,
            self.outbox,  # type: ignore[arg-type]  # it answers as an outbox does
            clock,
            Health(since=clock.monotonic()),
            urgent=lambda: False,
            mark_dead=lambda record, *, reason, attempts, again: note(f"dead: {reason}"),
            redact=Redactor(),
            on_delivered=lambda *_: None,
        )

    def happens(self) -> None:
        """One event of the whole group is seen here."""
        record = sample_record(2, event_id=_EVENT, resources=("vm_0",), vm=self.vm)
        data = read_object(EventData, record.data)
        self.pending = (
            PendingEvent(
                record_id=record.id,
                event=data.event,
                affects_this_vm=data.affects_this_vm,
                impact=data.impact,
                revision=data.revision,
                fingerprint=data.fingerprint,
            ),
        )
        self.outbox.waiting.append(record)
        self.worker.wake()


def main(port: int, first: int, count: int) -> None:
    """Obey until standard input ends."""
    logging.disable(logging.CRITICAL)
    threading.stack_size(_STACK)
    notes: list[tuple[float, str]] = []

    def note(what: str) -> None:
        notes.append((time.monotonic(), what))

    vms = [_Vm(number, port, note) for number in range(first, first + count)]
    orders: dict[str, Callable[[_Vm], None]] = {
        "start": lambda vm: vm.worker.start_if_possible(),
        "event": lambda vm: vm.happens(),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "report":
            said, notes[:] = list(notes), []
            print(json.dumps(said), flush=True)
        else:
            for vm in vms:
                orders[word](vm)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
