"""Any documents in any order, over jumps of the clock, bad answers, restarts and losses: a reader
of the records knows at each committed point what the documents said, and each fact has one id.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from document_replay import Replay, even
from document_shapes import Entry, Spelling, Written, clean, tagged
from document_strategies import (
    BAD_BODIES,
    ENTRIES,
    ERRORS,
    EVENT_IDS,
    NAMELESS,
    WRITTEN,
    spelt,
)
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from polling import Bench

from sinks.record import EventRecord

YEARS = 30 * 365 * 86400.0
MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and a thousand stores are made."""

Edit = tuple[str, Any]
"""An event, and its new entry, or the name of what happens to it, or one field of another entry."""
EDITS = st.lists(
    st.tuples(
        st.sampled_from(EVENT_IDS),
        ENTRIES
        | st.sampled_from(["start", "withdraw", "withdraw", "back", "back"])
        | st.tuples(st.sampled_from(["NotBefore", "DurationInSeconds", "Description"]), ENTRIES),
    ),
    max_size=3,
)
DISTURBANCES = st.lists(
    st.tuples(st.just("wait"), st.sampled_from([0.5, 4.5, 7.0, 900.0]))
    | st.tuples(st.just("jump"), st.sampled_from([-3600.0, 3600.0, 0.5, -YEARS, YEARS]))
    | st.tuples(st.just("stand_still"), st.sampled_from([1.5, 20.0]))
    | st.tuples(st.just("bad_day"), ERRORS | BAD_BODIES)
    | st.tuples(st.just("restart"), st.sampled_from([0, 0, 1]))
    | st.tuples(st.just("lose_the_store"), st.just(0)),
    max_size=2,
)


@dataclass(frozen=True)
class Seen:
    """A pending event as the last good document had it."""

    entry: Entry
    due: datetime | None
    """The last NotBefore that could be read."""
    disturbed: bool = False
    """Whether this VM was measured to restart or to stand still since it was first seen."""


class Documents(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.stores = 0
        self.bench = Bench(self.new_directory())
        self.replay = Replay()
        self.served: dict[str, Entry] = {}
        self.former: dict[str, list[Entry]] = {event_id: [] for event_id in EVENT_IDS}
        self.seen: dict[str, Seen] = {}
        self.incarnation: int | None = None
        self.boot = 1
        self.first_look = True
        self.disturbed = False

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            self.root.cleanup()

    def new_directory(self) -> Path:
        self.stores += 1
        return Path(self.root.name) / f"state-{self.stores}"

    # One rule per step of a life, so that every step is followed by a look.
    @rule(
        edits=EDITS,
        disturbances=DISTURBANCES,
        written=WRITTEN,
        nameless=st.lists(NAMELESS, max_size=1) | st.just([]) | st.just([]),
        twins=st.lists(st.tuples(st.sampled_from(EVENT_IDS), ENTRIES), max_size=1),
        spelling=st.sampled_from([0, 0, 1, 2]),
    )
    def live(
        self,
        *,
        edits: list[Edit],
        disturbances: list[tuple[str, Any]],
        written: Written,
        nameless: list[object],
        twins: list[Edit],
        spelling: int,
    ) -> None:
        """The document changes, something happens to the bridge, and it looks again."""
        for event_id, change in edits:
            self.edit(event_id, change)
        for name, argument in disturbances:
            getattr(self, name)(argument)
        self.look(written, nameless=nameless, twins=twins, spelling=spelling)

    def edit(self, event_id: str, change: Any) -> None:
        entry = self.served.get(event_id)
        match change:
            case Entry():
                entry = change
            case "back" if self.former[event_id]:
                entry = self.former[event_id].pop()
            case "start" if entry is not None:
                begun = {
                    "EventStatus": Spelling("Started", "Started"),
                    "NotBefore": Spelling("", None),
                }
                entry = replace(entry, fields={**entry.fields, **begun})
            case (str() as name, Entry() as other) if entry is not None:
                entry = replace(entry, fields={**entry.fields, name: other.fields[name]})
            case _:
                entry = None
        if before := self.served.pop(event_id, None):
            self.former[event_id].append(before)
        if entry is not None:
            self.served[event_id] = entry

    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, within what a clock of a computer can show."""
        if 1970 <= (self.bench.clock.now().year + seconds / 31_557_600) <= 2200:
            self.bench.clock.jump(seconds)

    def stand_still(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.bench.poller.lookout.stood_still(seconds)
        self.disturbed = True

    def bad_day(self, said: Exception | bytes) -> None:
        self.bench.fails(said)

    def restart(self, reboots: int) -> None:
        self.boot += reboots
        self.bench.restart(boot_id=f"boot-{self.boot}")
        self.first_look, self.disturbed = True, bool(reboots)

    def lose_the_store(self, reboots: int) -> None:
        self.boot += reboots
        self.bench.restart(boot_id=f"boot-{self.boot}", lost=self.new_directory())
        self.replay.begin_anew()
        self.seen, self.incarnation = {}, None
        self.first_look, self.disturbed = True, False

    def look(
        self, written: Written, *, nameless: list[object], twins: list[Edit], spelling: int
    ) -> None:
        entries: list[object] = [
            entry.raw(spelt(event_id, spelling)) for event_id, entry in self.served.items()
        ]
        # What repeats an id is left out, in whatever case.
        again = [
            entry.raw(spelt(event_id, spelling + 1))
            for event_id, entry in twins
            if event_id in self.served
        ]
        self.expect(whole=not nameless)
        records = self.bench.serve(written.body([*entries, *again, *nameless]))
        for record in records:
            self.examine(record, written, spelling)
            self.replay.feed(record)
        told = [
            (record.data["transition"], record.data["event"]["eventId"].casefold())
            for record in records
            if record.event_id
        ]
        assert (sorted(self.ends), self.others) == (
            sorted(key for kind, key in told if kind == "ended"),
            [each for each in told if each[0] != "ended"],
        )
        self.incarnation, self.first_look, self.disturbed = written.number, False, False
        self.compare()

    def expect(self, *, whole: bool) -> None:
        """What the next look must tell: `ends`, and the `others` in the document's order."""
        if self.disturbed:
            self.seen = {key: replace(each, disturbed=True) for key, each in self.seen.items()}
        self.before = dict(self.seen)
        here = {event_id.casefold(): entry for event_id, entry in self.served.items()}
        self.ends = [key for key in self.seen if whole and key not in here]
        for key in self.ends:
            del self.seen[key]
        self.others = []
        for key, entry in here.items():
            before = self.seen.get(key)
            if kind := change(before.entry if before else None, entry):
                self.others.append((kind, key))
            due = entry.fields["NotBefore"].read
            self.seen[key] = Seen(
                entry=entry,
                due=datetime.fromisoformat(due) if due else before.due if before else None,
                disturbed=bool(before and before.disturbed),
            )

    def examine(self, record: EventRecord, written: Written, spelling: int) -> None:
        """A record says what the document said, and what changed."""
        if record.event_id is None:
            return
        data, key = record.data, record.event_id.casefold()
        assert data["document"] == {
            "incarnation": written.number,
            "previousIncarnation": self.incarnation,
        }
        before = self.before.get(key)
        if data["transition"] == "ended":
            assert before is not None
            self.examine_end(data["event"]["eventStatus"], before)
            return
        entry = self.seen[key].entry
        assert tagged(data["raw"]) == tagged(clean(entry.raw(record.event_id)))
        assert (data["affectsThisVm"], data["impact"]) == (entry.affects, entry.impact)
        assert record.event_id in {spelt(event_id, spelling) for event_id in EVENT_IDS}
        if before is not None and data["transition"] == "updated":
            old, new = before.entry.facts(), entry.facts()
            names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
            assert names == set(data["changed"])

    def examine_end(self, status: str, before: Seen) -> None:
        """How an event ended is what was seen, or no more than what is known."""
        last = before.entry.status
        if last != "Scheduled":
            assert status == ("Completed" if last == "Started" else last)
        elif status == "Canceled":
            assert before.due is not None
            assert self.bench.clock.now() < before.due
            assert not self.first_look
        elif status == "Completed":
            assert before.disturbed
            assert before.entry.affects
        else:
            assert status == "Unknown"

    def compare(self) -> None:
        """A reader of the records knows what the documents say, and so does who asks the bridge."""
        rebuilt = {key: even(data["event"]) for key, data in self.replay.pending.items()}
        assert rebuilt == {key: even(each.entry.wire(key)) for key, each in self.seen.items()}
        pending = {each.event_id.casefold(): each for each in self.bench.poller.pending()}
        assert pending.keys() == self.replay.pending.keys()
        for key, each in pending.items():
            data = self.replay.pending[key]
            assert (each.revision, each.fingerprint, each.affects_this_vm) == (
                data["revision"],
                data["fingerprint"],
                data["affectsThisVm"],
            )


def change(before: Entry | None, after: Entry) -> str | None:
    """What happened to an event; another spelling of the same is nothing."""
    if after.status == "Started" and (before is None or before.status != "Started"):
        return "started"
    if before is None:
        return "scheduled"
    return "updated" if before.facts() != after.facts() else None


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class _Many(Documents):
    pass


class _Most(Documents):
    pass


TestFewSeries = Documents.TestCase
TestFewSeries.settings = _settings(15, 20)
TestManySeries = pytest.mark.faults(_Many.TestCase)
TestManySeries.settings = _settings(100, 40)
TestMostSeries = pytest.mark.slow(pytest.mark.timeout(3600)(_Most.TestCase))
TestMostSeries.settings = _settings(2000, 60)
