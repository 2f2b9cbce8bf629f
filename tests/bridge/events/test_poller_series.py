"""Any series of documents, good polls and bad, restarts and losses: what the records say of it.

The model beside the bridge is written from the design's tables alone, without the bridge's code.
"""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from jsonschema import Draft202012Validator, FormatChecker
from support.documents.documents import LATER, NOT_BEFORE, body
from support.imds.polling import Bench, pending_after

from bridge.imds.client import ImdsError
from sinks.record import EventRecord, schema

VALIDATOR = Draft202012Validator(schema(), format_checker=FormatChecker())
MISSING = object()
EVENT_IDS = ("AAA-1", "BBB-2")

# What IMDS may write in a field, and what a record says then.
DATES = {
    NOT_BEFORE: "2026-03-02T10:15:00Z",
    LATER: "2026-03-02T10:30:00Z",
    "Sun, 01 Mar 2026 09:00:00 GMT": "2026-03-01T09:00:00Z",
    "": None,
    "soon": None,
    MISSING: None,
}
DURATIONS = {-1: None, 0: 0, 9: 9, "9": None, MISSING: None}
STATUSES = {"Scheduled": "Scheduled", "Started": "Started", "Napping": "Unknown"}
TEXTS = {"": "", "some words": "some words", 5: None, MISSING: None}
RESOURCES: list[tuple[str, ...]] = [("web_3",), ("web_4",), ("web_4", "WEB_3"), ()]


@dataclass(frozen=True)
class Shape:
    """An entry as IMDS writes it."""

    status: str
    date: Any
    duration: Any
    description: Any
    resources: tuple[str, ...]
    extra: Any

    def raw(self, event_id: str) -> dict[str, Any]:
        fields = {
            "EventId": event_id,
            "EventType": "Freeze",
            "EventStatus": self.status,
            "Resources": list(self.resources),
            "NotBefore": self.date,
            "DurationInSeconds": self.duration,
            "Description": self.description,
            "Novelty": self.extra,
        }
        return {name: value for name, value in fields.items() if value is not MISSING}

    def wire(self, event_id: str) -> dict[str, Any]:
        return {
            "eventId": event_id,
            "eventType": "Freeze",
            "resourceType": None,
            "resources": sorted(self.resources),
            "eventStatus": STATUSES[self.status],
            "notBefore": DATES[self.date],
            "description": TEXTS[self.description],
            "eventSource": None,
            "durationInSeconds": DURATIONS[self.duration],
        }

    @property
    def ours(self) -> bool:
        return "web_3" in [name.lower() for name in self.resources]


@dataclass(frozen=True)
class Watched:
    """What the model knows of a pending event."""

    shape: Shape
    date: datetime | None
    disturbed: bool = False
    """Whether this VM was measured to restart or to stand still since it was first seen."""


@dataclass
class World:
    """What the model knows of one store."""

    pending: dict[str, Watched] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    booted: str | None = None


SHAPES = st.builds(
    Shape,
    status=st.sampled_from(["Scheduled", "Scheduled", *STATUSES]),
    date=st.sampled_from(list(DATES)),
    duration=st.sampled_from(list(DURATIONS)),
    description=st.sampled_from(list(TEXTS)),
    resources=st.sampled_from(RESOURCES),
    extra=st.sampled_from([MISSING, 1, {"a": [None]}]),
)


Edit = tuple[str, Shape | str]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(EVENT_IDS), SHAPES | st.sampled_from(["start", "withdraw", "withdraw"])
    ),
    max_size=2,
)
Disturbance = tuple[str, Any]
BAD_DAYS = [ImdsError("no", reason="http_500"), b"", b"{}", b'{"Events":{}}']
DISTURBANCES = st.lists(
    st.tuples(st.just("wait"), st.sampled_from([0.5, 4.5, 7.0, 600.0, 900.0]))
    | st.tuples(st.just("stand_still"), st.sampled_from([1.5, 20.0]))
    | st.tuples(st.just("bad_day"), st.sampled_from(BAD_DAYS))
    | st.tuples(st.just("restart"), st.sampled_from([0, 0, 1]))
    | st.tuples(st.just("lose_the_store"), st.just(0)),
    max_size=2,
)


Told = tuple[str, str, str, int]
"""Kind, event, status and revision of a transition."""


class Series(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = tempfile.TemporaryDirectory()
        self.stores = 0
        self.bench = Bench(self.new_directory())
        self.world = World()
        self.shapes: dict[str, Shape] = {}
        self.incarnation = 0
        self.boot = 1
        self.paused = 0.0
        self.looked: datetime | None = None
        self.facts: dict[str, tuple[Any, ...]] = {}

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            self.root.cleanup()

    def new_directory(self) -> Path:
        self.stores += 1
        return Path(self.root.name) / f"state-{self.stores}"

    # One rule per step of a life, so that every step is followed by a look.
    @rule(edits=EDITS, disturbances=DISTURBANCES)
    def live(self, edits: list[Edit], disturbances: list[Disturbance]) -> None:
        """The document changes, something happens to the bridge, and it looks again."""
        for event_id, shape in edits:
            self.edit(event_id, shape)
        for name, argument in disturbances:
            getattr(self, name)(argument)
        self.poll()

    def edit(self, event_id: str, shape: Shape | str) -> None:
        self.incarnation = (self.incarnation + len(event_id) + 1) % 7
        if isinstance(shape, Shape):
            self.shapes[event_id] = shape
        elif event_id in self.shapes and shape == "start":
            self.shapes[event_id] = replace(self.shapes[event_id], status="Started", date="")
        else:
            self.shapes.pop(event_id, None)

    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    def stand_still(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.bench.state.lookout.stood_still(seconds)
        self.paused += seconds

    def bad_day(self, said: Exception | bytes) -> None:
        self.bench.fails(said)

    def restart(self, reboots: int) -> None:
        self.boot += reboots
        self.bench.restart(boot_id=f"boot-{self.boot}")
        self.looked, self.paused = None, 0.0

    def lose_the_store(self, reboots: int) -> None:
        self.boot += reboots
        self.bench.restart(boot_id=f"boot-{self.boot}", lost=self.new_directory())
        self.world = World()
        self.looked, self.paused = None, 0.0

    def poll(self) -> None:
        entries = [shape.raw(event_id) for event_id, shape in self.shapes.items()]
        head = self.bench.store.head
        records = self.bench.serve(body(*entries, incarnation=self.incarnation))
        expected = self.expected(self.bench.clock.now())
        about_events = [record for record in records if record.event_id]
        assert ordered(expected) == ordered(
            (
                record.data["transition"],
                record.event_id,
                record.data["event"]["eventStatus"],
                record.data["revision"],
            )
            for record in about_events
        )
        assert [record.sequence for record in records] == [
            head + place for place in range(1, len(records) + 1)
        ]
        for record in records:
            self.examine(record)
        self.rebuild()

    def expected(self, now: datetime) -> list[Told]:
        """What the design's tables say of this look: kind, event, status, revision."""
        world = self.world
        boot = f"boot-{self.boot}"
        if self.paused or world.booted not in (None, boot):
            world.pending = {k: replace(w, disturbed=True) for k, w in world.pending.items()}
        looking = self.looked is not None and now - self.looked <= timedelta(seconds=5)
        self.looked, self.paused, world.booted = now, 0.0, boot
        told = []
        for event_id in [each for each in world.pending if each not in self.shapes]:
            gone = world.pending.pop(event_id)
            told.append(self.tell("ended", event_id, ending(gone, now, looking=looking)))
        for event_id, shape in self.shapes.items():
            before = world.pending.get(event_id)  # one that ended and returns begins anew
            date = DATES[shape.date]
            known = datetime.fromisoformat(date) if date else before and before.date
            world.pending[event_id] = Watched(
                shape=shape, date=known, disturbed=bool(before and before.disturbed)
            )
            kind = change(before and before.shape, shape)
            if kind:
                told.append(self.tell(kind, event_id, STATUSES[shape.status]))
        return told

    def tell(self, kind: str, event_id: str, status: str) -> Told:
        revision = self.world.revisions[event_id] = self.world.revisions.get(event_id, 0) + 1
        return (kind, event_id, status, revision)

    def examine(self, record: EventRecord) -> None:
        """Valid, with an id that no other fact has, and with what IMDS wrote."""
        VALIDATOR.validate(json.loads(record.body))
        if record.event_id is None:
            return
        data = record.data
        fact = (record.event_id, data["transition"], data["revision"], data["fingerprint"])
        assert self.facts.setdefault(record.id, fact) == fact
        assert len(set(self.facts.values())) == len(self.facts)
        if data["transition"] != "ended":
            shape = self.shapes[record.event_id]
            assert (shape.raw(record.event_id), shape.ours) == (
                data["raw"],
                data["affectsThisVm"],
            )

    def rebuild(self) -> None:
        """A reader of the records knows what the document says."""
        rebuilt = {
            event_id: {**event, "resources": sorted(event["resources"])}
            for event_id, event in pending_after(self.bench.records()).items()
        }
        assert rebuilt == {
            event_id: shape.wire(event_id) for event_id, shape in self.shapes.items()
        }
        assert sorted(rebuilt) == sorted(each.event_id for each in self.bench.state.pending())


def ordered(told: Iterable[Told]) -> list[Told]:
    """Ends first, in any order: the store has its own. Then the document's order."""
    listed = list(told)
    ends = [each for each in listed if each[0] == "ended"]
    assert ends == listed[: len(ends)]
    return sorted(ends) + listed[len(ends) :]


def ending(gone: Watched, now: datetime, *, looking: bool) -> str:
    """The design's table of how an event ended."""
    status = STATUSES[gone.shape.status]
    if status == "Started":
        return "Completed"
    if status != "Scheduled":
        return "Unknown"
    if gone.date is not None and now < gone.date and looking:
        return "Canceled"
    return "Completed" if gone.disturbed and gone.shape.ours else "Unknown"


def change(before: Shape | None, after: Shape) -> str | None:
    """What happened to an event; the order of resources and other spellings are nothing."""
    if before is None:
        return "started" if after.status == "Started" else "scheduled"
    if after.status == "Started" != before.status:
        return "started"
    return "updated" if facts(before) != facts(after) else None


def facts(shape: Shape) -> tuple[Any, ...]:
    """What a change of the entry must change to be news: what is read, and what cannot be read."""
    unread = [
        value
        for value, read in ((shape.date, DATES), (shape.duration, DURATIONS))
        if read[value] is None and value not in ("", -1, MISSING)
    ]
    novelty = None if shape.extra is MISSING else (shape.extra,)
    description = shape.description if shape.description != MISSING else None
    return (shape.wire("x"), unread, description, novelty)


Series.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
TestSeries = Series.TestCase
