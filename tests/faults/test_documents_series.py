"""Any documents in any order, over jumps of the clock, bad answers, restarts and losses: a reader
of the records knows at each committed point what the documents said, and each fact has one id.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from support.documents.life import DISTURBANCES, EDITS, Edit, LastSeenEvent, change, edited
from support.documents.replay import Replay, even
from support.documents.shapes import Entry, Written, clean, tagged
from support.documents.strategies import EVENT_IDS, NAMELESS, WRITTEN, spelt
from support.faults.oracle import Figures
from support.faults.sizes import sizes
from support.imds.poller_bench import PollerBench

from wire.record import Record

Tell = Callable[[Figures], None]
MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and a thousand stores are made."""


class Documents(RuleBasedStateMachine):
    counts: ClassVar[Counter[str]] = Counter()
    """What happened in all series together."""

    @initialize()
    def begin(self) -> None:
        self.root = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.stores = 0
        self.bench = PollerBench(self.new_directory())
        self.replay = Replay()
        self.served: dict[str, Entry] = {}
        self.former: dict[str, list[Entry]] = {event_id: [] for event_id in EVENT_IDS}
        self.seen: dict[str, LastSeenEvent] = {}
        self.incarnation: int | None = None
        self.boot = 1
        self.rebooted = False
        self.paused = 0.0
        self.looked: float | None = None
        """The monotonic time of this run's last good look."""

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
        twins=st.lists(st.sampled_from(EVENT_IDS), max_size=1),
        spelling=st.sampled_from([0, 0, 1, 2]),
    )
    def live(
        self,
        *,
        edits: list[Edit],
        disturbances: list[tuple[str, Any]],
        written: Written,
        nameless: list[object],
        twins: list[str],
        spelling: int,
    ) -> None:
        """The document changes, something happens to the bridge, and it looks again."""
        for event_id, new in edits:
            self.edit(event_id, new)
        for name, argument in disturbances:
            getattr(self, name)(argument)
        self.poll(written, nameless=nameless, twins=twins, spelling=spelling)

    def edit(self, event_id: str, new: Any) -> None:
        entry = edited(self.served.get(event_id), new, self.former[event_id])
        if before := self.served.pop(event_id, None):
            self.former[event_id].append(before)
        if entry is not None:
            self.served[event_id] = entry

    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, within what a clock of a computer can show."""
        self.counts["jumps"] += 1
        if 1970 <= (self.bench.clock.now().year + seconds / 31_557_600) <= 2200:
            self.bench.clock.jump(seconds)

    def stand_still(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.bench.current.gaps.note_standstill(seconds)
        self.paused += seconds

    def bad_day(self, said: Exception | bytes) -> None:
        self.counts["bad"] += 1
        self.bench.fails(said)

    def restart(self, reboots: int) -> None:
        self.counts["restarts"] += 1
        self.boot += reboots
        self.bench.restart(boot_id=f"boot-{self.boot}")
        self.looked, self.paused = None, 0.0
        self.rebooted = self.rebooted or bool(reboots)

    def lose_the_store(self, reboots: int) -> None:
        self.counts["restarts"] += 1
        self.boot += reboots
        self.bench.restart(boot_id=f"boot-{self.boot}", lost=self.new_directory())
        self.replay.begin_anew()
        self.seen, self.incarnation = {}, None
        self.looked, self.paused, self.rebooted = None, 0.0, False

    def poll(
        self, written: Written, *, nameless: list[object], twins: list[str], spelling: int
    ) -> None:
        entries: list[object] = [
            entry.raw(spelt(event_id, spelling)) for event_id, entry in self.served.items()
        ]
        # What is said twice, with the id in whatever case, is said once. Two entries that differ
        # are in tests/bridge/imds/test_document.py.
        again = [
            self.served[event_id].raw(spelt(event_id, spelling + 1))
            for event_id in twins
            if event_id in self.served
        ]
        self.now = self.bench.clock.now() + timedelta(seconds=1)
        self.expect(whole=not nameless)
        records = self.bench.serve(written.body([*entries, *again, *nameless]))
        self.counts.update(looks=1, records=len(records))
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
        self.incarnation, self.looked = written.number, self.bench.clock.monotonic()
        self.paused, self.rebooted = 0.0, False
        self.compare()

    def expect(self, *, whole: bool) -> None:
        """What the next look must tell: `ends`, and the `others` in the document's order."""
        for key, each in self.seen.items():
            self.seen[key] = replace(
                each, paused=each.paused + self.paused, rebooted=each.rebooted or self.rebooted
            )
        self.before = dict(self.seen)
        here = {event_id.casefold(): entry for event_id, entry in self.served.items()}
        self.ends = [key for key in self.seen if whole and key not in here]
        self.gone = {key: self.seen.pop(key) for key in self.ends}
        self.others = []
        for key, entry in here.items():
            before = self.seen.get(key)
            if kind := change(before.entry if before else None, entry):
                self.others.append((kind, key))
            due = entry.fields["NotBefore"].read
            self.seen[key] = LastSeenEvent(
                entry=entry,
                due=datetime.fromisoformat(due) if due else before.due if before else None,
                first=before.first if before else self.now,
                paused=before.paused if before else 0.0,
                rebooted=before.rebooted if before else False,
            )

    def examine(self, record: Record, written: Written, spelling: int) -> None:
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
            gone = self.gone[key]
            self.examine_observation(data, gone)
            self.examine_end(data["event"]["eventStatus"], gone)
            return
        self.examine_observation(data, self.seen[key])
        entry = self.seen[key].entry
        assert tagged(data["raw"]) == tagged(clean(entry.raw(record.event_id)))
        assert (data["affectsThisVm"], data["impact"]) == (entry.affects, entry.impact)
        assert record.event_id in {spelt(event_id, spelling) for event_id in EVENT_IDS}
        if before is not None and data["transition"] == "updated":
            old, new = before.entry.facts(), entry.facts()
            names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
            assert names == set(data["changed"])

    def examine_observation(self, data: Mapping[str, Any], seen: LastSeenEvent) -> None:
        """What was measured is right, and nothing else is added to it by a clock that is set."""
        told = data["observation"]
        notice = None if seen.due is None else round((seen.due - seen.first).total_seconds(), 3)
        assert told["noticeSeconds"] == notice
        if data["transition"] in ("started", "ended"):
            assert (told["pauseSeconds"] or 0.0, bool(told["restarted"])) == (
                seen.paused,
                seen.rebooted,
            )

    def examine_end(self, status: str, before: LastSeenEvent) -> None:
        """How an event ended is what was seen, or no more than what is known."""
        last = before.entry.status
        if last != "Scheduled":
            ends = {"Started": "Completed", "Completed": "Completed", "Canceled": "Canceled"}
            assert status == ends.get(last, "Unknown")
        elif status == "Canceled":
            assert before.due is not None
            assert self.now < before.due
            assert self.looked is not None
            assert self.bench.clock.monotonic() - self.looked <= 5.0
        elif status == "Completed":
            assert before.paused or before.rebooted
            assert before.entry.affects
        else:
            assert status == "Unknown"

    def compare(self) -> None:
        """A reader of the records knows what the documents say, and so does who asks the bridge."""
        rebuilt = {key: even(data["event"]) for key, data in self.replay.pending.items()}
        assert rebuilt == {key: even(each.entry.wire(key)) for key, each in self.seen.items()}
        pending = {each.event.key: each for each in self.bench.current.pending()}
        assert pending.keys() == self.replay.pending.keys()
        for key, each in pending.items():
            data = self.replay.pending[key]
            assert (each.revision, each.fingerprint, each.affects_this_vm) == (
                data["revision"],
                data["fingerprint"],
                data["affectsThisVm"],
            )


def try_series(examples: int, steps: int) -> Figures:
    """Live through so many series of so many looks; what was found."""
    Documents.counts.clear()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(Documents, settings=chosen)
    counts = Documents.counts
    assert counts["looks"] > 0
    return Figures(
        case="IMDS: any series of documents",
        rounds=examples,
        documents=counts["looks"],
        records=counts["records"],
        repeated=0,
        dead=0,
        posts=0,
        more=f"{counts['looks']} documents, {counts['bad']} bad answers, {counts['jumps']} jumps "
        f"of the clock, {counts['restarts']} restarts",
    )


@sizes("examples, steps", (12, 20), (80, 40), (1500, 60))
def test_any_series(tell: Tell, examples: int, steps: int) -> None:
    """Whatever the documents say, their records say the same."""
    tell(try_series(examples, steps))
