"""One sink whose settings, kind, far end, disk and person do whatever they like: it still hears of
each end.

Each kind of the sink has a far end of its own, which believes the record of an event that it got
last. Whenever the sink takes all records, has everything and has no dead record, that is what the
store has, too. Another sink takes everything; its writes also write what this one has done.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.documents.documents import FakeClock, ScriptedImds, body, entry
from support.imds.poller_bench import state_and_poller
from support.records.bench import DISK_FINE, DISK_FULL, Quiet

from bridge.delivery.dispatcher import recipients
from bridge.store.database import StoreError
from bridge.store.opening import open_store
from bridge.store.outbox import Outbox
from sinks.base import SinkSettings
from sinks.samples import sample_context
from wire.record import EVENT_ENDED, EVENT_SCHEDULED, EVENT_STARTED, EVENT_UPDATED, Record

NAME, OTHER = "ops", "log"
KINDS = ("quiet", "loud")
HOW = ["all", "all", "some", "unmarked", "refuse"]
"""What a sink does with a batch."""
Choice = tuple[tuple[str, ...] | None, bool]
"""The settings `TYPES` and `AFFECTS_THIS_VM_ONLY`."""
ALL: Choice = (None, False)
OURS: Choice = (None, True)
CHOICES: list[Choice | None] = [
    *[ALL] * 4,
    ((EVENT_SCHEDULED,), False),
    ((EVENT_SCHEDULED, EVENT_UPDATED, EVENT_STARTED), False),
    ((EVENT_ENDED,), False),
    (("seb.bridge.*",), False),
    OURS,
    ((EVENT_SCHEDULED,), True),
    ((EVENT_SCHEDULED, EVENT_UPDATED), True),
    None,
]
"""None: the sink is out of the settings."""
STATES: list[dict[str, object] | None] = [
    {},
    {},
    {"duration": 60},
    {"resources": ("web_4",)},
    {"resources": ("web_4",), "duration": 60},
    {"resources": ("web_3", "web_4")},
    {"status": "Started", "not_before": ""},
    None,
    None,
]
"""None: the event is not there."""


class ChoosingBench:
    """A bridge with this one sink; its store, poller and outbox are real."""

    def __init__(self, directory: Path, number: int) -> None:
        self.random = random.Random(number)
        self.choice: Choice | None = ALL
        self.kind = KINDS[0]
        self.views: dict[str, dict[str, Record]] = {kind: {} for kind in KINDS}
        """For each kind, the record that its far end got last of each event."""
        self._events = ["E-1", "E-2"]
        """All events so far; the last two may come, change and end."""
        self._dropped: dict[str, int] = {}
        """Of an event of which a person has dropped a record, the newest sequence then: until the
        far end gets a later record, nobody knows what it believes, whatever its kind.
        """
        self._directory = directory
        self._clock = FakeClock()
        self._imds = ScriptedImds(body())
        self._said: dict[str, object] = {}
        self._polls = 0
        self._begin()

    def live(self, steps: int) -> None:
        """Live through so many steps, and look at the end."""
        for _ in range(steps):
            self._pick(self._steps())()
        for kind in KINDS:
            self._restart(ALL, kind)
            self._take_all()
            self.outbox.retry(NAME, None)
            self._poll()
            self._settle()
        self.store.close()

    def _steps(self) -> list[Callable[[], object]]:
        return [
            *[self._say] * 5,
            *[self._poll] * 4,
            *[lambda: self._serve(self._pick(HOW))] * 5,
            *[lambda: self._serve(self._pick(HOW), meanwhile=self._retry)] * 2,
            lambda: self._serve(self._pick(HOW), meanwhile=self._drop),
            self._retry,
            self._drop,
            self._settle,
            *[self._reconfigure] * 2,
            *[self._restart_twice] * 2,
            *[self._come_and_go] * 3,
            *[self._name_another] * 2,
            self._retry_between_runs,
            *[self._serve_other] * 2,
            *[self._serve_on_full_disk] * 2,
        ]

    def _begin(self) -> None:
        self.store, _ = open_store(self._directory, self._clock.now())
        self.current, self._poller = state_and_poller(self.store, self._imds, self._clock)
        self.outbox = Outbox(self.store)
        sinks = [Quiet(OTHER, SinkSettings(kind=KINDS[0]), sample_context())]
        if self.choice is not None:
            types, ours_only = self.choice
            settings = SinkSettings(kind=self.kind, types=types, affects_this_vm_only=ours_only)
            sinks.append(Quiet(NAME, settings, sample_context()))
        self.outbox.register(recipients(sinks))

    def _restart(self, choice: Choice | None, kind: str) -> None:
        """Another run, with these settings of the sink; no record tells that it begins."""
        self.store.close()
        self.choice, self.kind = choice, kind
        self._begin()

    def _reconfigure(self) -> None:
        """Another run, with any settings of the sink, which is sometimes of the other kind."""
        kinds = [*[self.kind] * 4, *KINDS]
        self._restart(self._pick(CHOICES), self._pick(kinds))

    def _restart_twice(self) -> None:
        """Two runs with other settings, and the sink takes little in the first."""
        self._reconfigure()
        if self.random.random() < 0.5:
            self._come_and_go()
        if self.random.random() < 0.3:
            self._serve("some")
        self._reconfigure()

    def _come_and_go(self) -> None:
        """An event that is there ends; one that is not comes and goes."""
        event = self._pick(self._events[-2:])
        if event not in self._said:
            self._said[event] = entry(event)
            self._poll()
        del self._said[event]
        self._poll()

    def _name_another(self) -> None:
        """The older one of the events that may come is over, and another one may come."""
        if self._events[-2] not in self._said:
            self._events.append(f"E-{len(self._events) + 1}")

    def _retry_between_runs(self) -> None:
        """A person has dead records tried again while no bridge runs, and changes the settings."""
        self.outbox = Outbox(self.store)
        self._retry()
        self._reconfigure()

    def _retry(self) -> None:
        """A person has dead records tried again: all, or one of them."""
        self.outbox.retry(NAME, self._pick_dead())

    def _drop(self) -> None:
        """A person drops dead records: all, or one of them."""
        sequences = self._pick_dead()
        for dead in self.outbox.dead.shown(NAME):
            if sequences is None or dead.sequence in sequences:
                ((event,),) = self.store.read(
                    "SELECT event FROM records WHERE sequence = ?", (dead.sequence,)
                )
                self._dropped[event] = self.store.head
        self.outbox.dead.drop(NAME, sequences)

    def _pick_dead(self) -> list[int] | None:
        dead = self.outbox.dead.shown(NAME)
        return None if not dead or self.random.random() < 0.5 else [self._pick(dead).sequence]

    def _say(self) -> None:
        event, state = self._pick(self._events[-2:]), self._pick(STATES)
        self._said.pop(event, None)
        if state is not None:
            self._said[event] = entry(event, **state)

    def _poll(self) -> None:
        self._polls += 1
        self._imds.said = body(*self._said.values(), incarnation=self._polls)
        self._clock.advance(1)
        assert self._poller.run()

    def _serve(self, how: str, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """The sink takes a batch, or the first record of it; all, and the bridge is killed before
        it marks that, and perhaps runs with other settings then; or it refuses the first one for
        good. Whether there was one. `meanwhile` happens while the batch is on its way.
        """
        batch = None if self.choice is None else self.outbox.next(NAME, 3)
        if batch is None:
            return False
        meanwhile()
        if how == "refuse":
            self.outbox.mark_dead(
                NAME,
                batch.records[0].sequence,
                reason="no",
                attempts=1,
                now=self._clock.now(),
                again=batch.again,
            )
            return True
        count = 1 if how == "some" else len(batch.records)
        for record in batch.records[:count]:
            if record.event_id is not None:
                self.views[self.kind][record.event_id] = record
        if how == "unmarked" and self.random.random() < 0.5:
            self._reconfigure()
        elif how == "unmarked":
            self._restart(self.choice, self.kind)
        else:
            self.outbox.move_past(NAME, batch, count)
        return True

    def _serve_other(self) -> None:
        """The other sink takes a batch."""
        if batch := self.outbox.next(OTHER, 3):
            self.outbox.move_past(OTHER, batch)

    def _serve_on_full_disk(self) -> None:
        """The sink is served while the store refuses writes, which may begin with a batch on its
        way and after a person's retry. Once it accepts them, the first write may be for the other
        sink, and the bridge may be restarted at once.
        """
        if self.random.random() < 0.5:
            with suppress(StoreError):
                self._serve(self._pick(HOW), meanwhile=self._retry_and_fill_disk)
        self.store.read(DISK_FULL)
        for _ in range(self._pick([1, 2, 3])):
            with suppress(StoreError):
                self._serve(self._pick(HOW))
        self.store.read(DISK_FINE)
        if self.random.random() < 0.5:
            self._serve_other()
        if self.random.random() < 0.6:
            self._reconfigure()

    def _retry_and_fill_disk(self) -> None:
        self._retry()
        self.store.read(DISK_FULL)

    def _take_all(self) -> None:
        while self._serve("all"):
            pass

    def _settle(self) -> None:
        """The sink takes everything; then the far end of its kind knows what is so. If the sink
        leaves out events of other VMs, what it knows has its end, or names this VM no more.
        """
        self._take_all()
        if self.choice not in (ALL, OURS) or self.outbox.dead.count(NAME):
            return
        pending = {
            each.event.event_id: each for each in self.current.events.values() if each.pending
        }
        for event in self._events:
            known, tracked = self.views[self.kind].get(event), pending.get(event)
            if (known.sequence if known else 0) <= self._dropped.get(event.casefold(), -1):
                continue
            if tracked is None:
                has_end = known is None or known.type == EVENT_ENDED
                assert has_end or self._names_us_no_more(known), f"{event} has no end"
            elif self.choice == ALL or tracked.affects_this_vm:
                assert known is not None, f"{event} is not known"
                assert known.data["revision"] == tracked.revision, f"{event} is not known as it is"

    def _names_us_no_more(self, known: Record | None) -> bool:
        """Check whether the record is the one by which an event stops naming this VM. An event that
        never named it is over with its end, for a sink that got its beginning.
        """
        stops = known is not None and known.concerns_this_vm is True and not known.affects_this_vm
        return self.choice == OURS and stops

    def _pick(self, among: list[Any]) -> Any:
        return among[self.random.randrange(len(among))]
