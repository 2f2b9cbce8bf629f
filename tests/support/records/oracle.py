"""What must be true of records, in words of its own: it reads documents and bodies of records, and
shares no code with the bridge.

Every change once: each poll commits one record for each event that is not as the store has it. One
id, one fact: the same change of the same event, or the same bytes. Every `scheduled` has its end
at every sink that got it; a receiver drops each id that it has had.
"""

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

OURS = "web_3"
"""The VM that the bridge runs on."""
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OracleState:
    """What IMDS says of an event."""

    status: str = "Scheduled"
    resources: tuple[str, ...] = (OURS,)
    duration: int = 9
    since: int = 0
    """The incarnation of the first document that says so."""

    @property
    def names_us(self) -> bool:
        return OURS in self.resources

    def differs(self, other: "OracleState") -> bool:
        """Whether it says something else; since when does not count."""
        return self.content != other.content

    @property
    def content(self) -> tuple[object, ...]:
        return (self.status, sorted(self.resources), self.duration)


@dataclass
class Lineage:
    """What one store has recorded; a copy of the store has a copy of it."""

    pending: dict[str, OracleState] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    newest: dict[str, Record] = field(default_factory=dict)
    """Of each event, the data of its newest record."""
    left: dict[str, int] = field(default_factory=dict)
    """The newest sequence when a sink was taken out, by its name and kind."""
    kinds: dict[str, str] = field(default_factory=dict)
    """What a name was last, that has gone."""

    def copy(self) -> "Lineage":
        return deepcopy(self)


class OracleReceiver:
    """The far end of one sink: it drops what it has had, and believes what was observed last."""

    def __init__(self, facts: "Facts") -> None:
        self._facts = facts
        self.ids: set[str] = set()
        self._places: dict[str, int] = {}
        self.view: dict[str, Record] = {}
        """Of each event, the data of the newest record."""
        self.open: set[str] = set()
        """Events of which it got something that needs an end."""
        self.unsure: set[str] = set()
        """Events of which no bridge could tell it the truth, until a record of them comes."""
        self.past: set[str] = set()
        """Events that were over before the sink was named, of which it knows nothing."""
        self.absent = (0, 0)
        """After which sequence it was not named, and until which."""

    def take(self, record: Record) -> None:
        """The sink delivers a record."""
        if record["id"] in self.ids:
            return
        self.ids.add(record["id"])
        data = record["data"]
        if "transition" not in data:
            return
        event = data["event"]["eventId"]
        first, last = self.absent
        late = first < int(record["sequence"]) <= last
        ended = data["transition"] == "ended"
        assert ended or not (late and event in self.past), "a sink gets an event of the past"
        before, place = self.view.get(event), self._facts.order[record["id"]]
        if place < self._places.get(event, 0):
            return  # a store that was put back sends what it had not sent then
        self.view[event], self._places[event] = data, place
        leaves = before is not None and before["affectsThisVm"] and not data["affectsThisVm"]
        if data["transition"] == "ended" or leaves:
            self.open.discard(event)
        else:
            self.open.add(event)
        self.past.discard(event)
        if data["revision"] > 1:
            self.unsure.discard(event)

    def join(self, lineage: Lineage, left: int, head: int) -> None:
        """The sink is named, and was not in the run before."""
        known = lineage.newest.items()
        over = {event for event, data in known if data["transition"] == "ended"}
        self.past = over - self.open
        self.absent = (left, head)

    def replace(self) -> None:
        """The sink takes the place of one of another kind, and what waits for that as well."""
        self.past = set()

    def lose_track(self, lineage: Lineage, events: Iterable[str]) -> None:
        """The store is an earlier one, which may know less than was told here. What it knows as
        refused stays so: of such an event there is nothing on either side.
        """
        for event in events:
            known, newest = self.view.get(event), lineage.newest.get(event)
            if known is None and newest is None:
                continue
            # Of an event of other VMs that was told, that disk may not know that it was.
            if _same(known, newest) and newest is not None and newest["affectsThisVm"]:
                self.unsure.discard(event)
            else:
                self.unsure.add(event)

    def judge(self, lineage: Lineage, *, ours_only: bool) -> None:
        """Everything is delivered: it knows what is pending, and what is over."""
        for event, newest in lineage.newest.items():
            if event in self.unsure:
                continue
            pending = newest["transition"] != "ended"
            if pending and (newest["affectsThisVm"] or not ours_only):
                assert _same(self.view.get(event), newest), "a sink does not know what is pending"
            elif not pending:
                assert event not in self.open, "an event that a sink knows has no end there"
            elif event in self.open:
                assert not self.view[event]["affectsThisVm"], "the event names us no more"


def _same(one: Record | None, other: Record | None) -> bool:
    if one is None or other is None:
        return one is other
    both = ("transition", "fingerprint")
    ended = [each["transition"] == "ended" for each in (one, other)]
    return ended == [True, True] or (not any(ended) and one[both[1]] == other[both[1]])


class Facts:
    """What each id stands for, whatever happens to the store."""

    def __init__(self) -> None:
        self._facts: dict[str, object] = {}
        self.order: dict[str, int] = {}
        """The place of each id among all, by its first commit."""

    def is_one(self, record: Record, fact: object) -> None:
        """The id of the record stands for this fact, and for no other."""
        self.order.setdefault(record["id"], len(self.order))
        known = self._facts.setdefault(record["id"], fact)
        assert known == fact, f"one id for two facts: {known} and {fact}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment: the wall clock, and seconds in all until then."""

    wall: str
    real: float
    counted: float
    """By the clocks of the machine, which do not count each pause."""
    measured: float
    """The pauses that the bridge has measured."""


@dataclass(frozen=True, slots=True)
class OracleGap:
    """Seconds for which the bridge did not look."""

    real: float
    least: float
    """What it must tell: a pause that no clock counted may hide in a longer time that one did."""
    most: float
    """What it may tell: a pause that a clock counted may look like another one."""


def gap_between(before: tuple[Moment, Moment], after: tuple[Moment, Moment]) -> OracleGap:
    """The gap between two polls, each the moments of its request and its answer: its document shows
    a moment between these.
    """
    both = list(zip(before, after, strict=True))
    return OracleGap(
        max(later.real - earlier.real for earlier, later in both),
        max(_least(earlier, later) for earlier, later in both),
        max(
            later.real - earlier.real + later.measured - earlier.measured for earlier, later in both
        ),
    )


def _least(before: Moment, after: Moment) -> float:
    counted, real = after.counted - before.counted, after.real - before.real
    return real if real - counted > counted else counted


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePoll:
    """What a good poll saw."""

    visible: Mapping[str, OracleState]
    """The events within the scope."""
    gone: Mapping[str, object]
    """Since when an event that is not visible is gone."""
    gap: OracleGap | None
    """Since this run's last good poll; None for the first."""
    at: str
    """The wall clock's time of the answer."""


def judge_poll(lineage: Lineage, facts: Facts, poll: OraclePoll, records: Iterable[Record]) -> None:
    """A poll committed these records."""
    fields: dict[str, Record] = {}
    gaps = 0
    for record in records:
        data = record["data"]
        assert record["time"] == poll.at, "a record that does not have the time of its answer"
        if "transition" in data:
            event = data["event"]["eventId"]
            assert event not in fields, "one change has two records"
            fields[event] = record
        else:
            facts.is_one(record, json.dumps(record))
            gaps += record["type"] == "seb.bridge.gap.v1"
    if poll.gap is not None and (poll.gap.least > 10 or poll.gap.most <= 10):
        assert gaps == (poll.gap.real > 10), "a gap record for a long gap, and for no other"
    expected = _changes(lineage, poll.visible)
    assert expected == {event: record["data"]["transition"] for event, record in fields.items()}
    for event, record in fields.items():
        _judge_change(lineage, facts, poll, record)
        lineage.revisions[event] = record["data"]["revision"]
        lineage.newest[event] = record["data"]


def _changes(lineage: Lineage, visible: Mapping[str, OracleState]) -> dict[str, str]:
    """The transition of each event that is not as the store has it."""
    changes = {event: "ended" for event in lineage.pending if event not in visible}
    for event, state in visible.items():
        before = lineage.pending.get(event)
        begins = state.status == "Started" and (before is None or before.status != "Started")
        if before is None:
            changes[event] = "started" if begins else "scheduled"
        elif state.differs(before):
            changes[event] = "started" if begins else "updated"
    return changes


def _judge_change(lineage: Lineage, facts: Facts, poll: OraclePoll, record: Record) -> None:
    data, told = record["data"], record["data"]["event"]
    event, state = told["eventId"], poll.visible.get(told["eventId"])
    assert data["revision"] == lineage.revisions.get(event, 0) + 1, "a revision is not the next"
    if poll.gap is not None:
        gap = data["observation"]["gapSeconds"]
        assert poll.gap.least - 0.01 < gap < poll.gap.most + 0.01, "another length of a gap"
    if state is None:
        looking = poll.gap is not None and poll.gap.real <= 5
        assert looking or told["eventStatus"] != "Canceled", "how it ended was not seen"
        del lineage.pending[event]
        since = poll.gone[event]
    else:
        said = (told["eventStatus"], sorted(told["resources"]), told["durationInSeconds"])
        assert said == state.content, "a record says something else than the document"
        lineage.pending[event] = state
        since = state.since
    # A store that is lost sees an event for the first time again, and gives it the id that it had.
    place = since if data["revision"] > 1 else None
    facts.is_one(record, (event, data["transition"], data["fingerprint"], place))
