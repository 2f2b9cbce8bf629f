"""A bridge's approvals among everything that changes over time: IMDS, sinks, keys, settings, polls
that fail or take long, POSTs that hang, a machine that stands still, a disk that is full or put
back. Nothing runs by itself, no time passes unless a step says so, and each choice comes from one
seed.
"""

import json
import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

from support.commands.approval_bench import (
    ObedientImds,
    approval_worker_of,
    approvals_of,
    fails,
    has_work,
    run_once,
    tell_poll,
)
from support.commands.control_plane import IssuerKey, jwks
from support.documents.documents import FakeClock, body
from support.imds.poller_bench import state_and_poller

from bridge.config.approval import Rule
from bridge.imds.client import ImdsError
from bridge.imds.exchange import WithheldError
from bridge.service.scheduler import Watch
from bridge.store.approvals import ApprovalStore
from bridge.store.batch import Batch
from bridge.store.database import Store, StoreError
from bridge.store.opening import open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Accepts, Recipient
from sinks.base import CommandMessage

SIGNERS = {
    "one": IssuerKey("key-1"),
    "one, renewed": IssuerKey("key-1"),
    "one, second": IssuerKey("key-2"),
    "other": IssuerKey("key-3", issuer="https://other.example"),
}
"""Made once: a key costs time."""
HANG_SECONDS = 5
"""How long a POST without an answer takes."""
MAX_PATIENCE_SECONDS = 5.0
"""How much older a document may be because answers always take so long."""
MAX_WAIT_SECONDS = 13.0
"""Seconds that the approval worker may work before it has taken a command that waits: one POST that
hangs and its round; twice, for the round in which it comes.
"""
MANY = 205
"""More events than the bridge keeps once they have ended."""
INTERRUPTED = 0.04
"""How often the rest of the world goes on while approvals wait for the disk or for IMDS."""
SLOW = 0.05
"""How often a poll's answer comes seconds after its request."""
_OF_THE_MOMENT = {"observation", "document", "bridge", "vm", "node"}
"""What differs between two observations of one fact."""

Judge = Callable[[str], None]
Other = Callable[[], None]


@dataclass(frozen=True)
class Setup:
    """The settings of one run: each sink's kind and types by its name, and the rules."""

    sinks: Mapping[str, tuple[str, tuple[str, ...]]]
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class CommandClaims:
    """What a signed command says."""

    key: str
    fingerprint: str
    signer: str
    expires: int


class ModelImds(ObedientImds):
    """It tells of each POST when it comes in, and can let it hang."""

    def __init__(self, bench: "ModelBench") -> None:
        super().__init__()
        self._bench = bench
        self.extra: list[dict[str, Any]] = []
        """Entries beside those of `events_now`: a second one of an EventId, or one without."""
        self.served: list[dict[str, Any]] = []
        self.hanging = False
        """Whether POSTs have no answer, and no effect."""

    def document(self) -> bytes:
        if self.silent:
            raise ImdsError("no: http_503", reason="http_503")
        self.served = [dict(each) for each in (*self.events_now.values(), *self.extra)]
        self.incarnation += 1
        said = body(*self.served, incarnation=self.incarnation)
        self._bench.answering()
        return said

    def start(self, event_id: str, *, may_send: Callable[[], bool]) -> None:
        self._bench.interrupt()  # while it waits for its connection
        if not may_send():
            raise WithheldError
        self._bench.judge(event_id)
        self._bench.interrupt()
        if self.hanging:
            self._bench.hang(event_id)
        super().start(event_id, may_send=lambda: True)


class Bugs(logging.Handler):
    """The errors that the bridge takes for bugs of its own: it logs them and goes on, also where
    an onlooker raised them.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def __enter__(self) -> Self:
        logging.getLogger("bridge").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("bridge").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error that a line was logged about."""
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(record.exc_info[1])

    def check(self) -> None:
        """Raise the first one."""
        if self.found:
            raise self.found[0]


class Interrupted:
    """A store whose calls let the rest of the world go on before them, and after a commit. Not
    after a read: between the last look at the store and the POST nothing waits. `on_answer` is
    called after each call that was good.
    """

    def __init__(
        self,
        of: Any,
        pause: Callable[[], None],
        *,
        only: str = "",
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._of = of
        self._pause = pause
        self._only = only
        self._on_answer = on_answer

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found) or self._only not in ("", name):
            return found

        def call(*args: Any, **more: Any) -> Any:
            self._pause()
            answer = found(*args, **more)
            self._on_answer()
            if name != "read":
                self._pause()
            return answer

        return call


class ModelBench:
    """One bridge and all that it deals with. `judge` is told of each POST when it goes out; `other`
    and `act` do something of the rest of the world, and something that the approval worker is asked
    for.
    """

    def __init__(self, root: Path, seed: str) -> None:
        self._root = root
        self.random = random.Random(seed)
        self.judge: Judge = lambda _: None
        self.other: Other = lambda: None
        self.act: Other = lambda: None
        self.clock = FakeClock()
        self.imds = ModelImds(self)
        self.counts: Counter[str] = Counter()
        self.trusted: frozenset[str] | None = frozenset(SIGNERS)
        """Whose keys the trust file has; None while it cannot be read."""
        self.acknowledged: set[tuple[str, str, str]] = set()
        """Name and kind of a sink, and the id of a record that it has acknowledged."""
        self.words: dict[str, CommandClaims] = {}
        """What each signed command says, by its jti."""
        self.people: dict[str, CommandClaims] = {}
        """What each person approved, by the jti of the approval."""
        self.sent: list[bytes] = []
        """Every token, in order."""
        self.shown: list[dict[str, Any]] | None = None
        """The document of the last poll, if that was good and of this run."""
        self.shown_at = 0.0
        """When that was asked for, in true seconds."""
        self.patience = 0.0
        """By how much a document may be older, because polls take so long."""
        self.appeared: dict[str, float] = {}
        """When an event was first shown in its life, in true seconds."""
        self._asked_at = 0.0
        self._lasted = 0.0
        self._stood_still = 0.0
        self._facts: dict[str, str] = {}
        self._ids: set[str] = set()
        self._read_up_to = 0
        self._copy: tuple[set[str], int, dict[str, float]] | None = None
        self._held: dict[str, Batch] = {}
        self._waiting: dict[int, float] = {}
        self._worked = 0.0
        self._begun = 0.0
        self._busy = False
        self._polling = False
        self._working = False

    @property
    def real(self) -> float:
        """True seconds, whatever the clocks show."""
        return self.clock.monotonic() + self.clock.suspended() + self._stood_still

    # Runs

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self._root / "state"

    def begin(self, setup: Setup) -> None:
        """A run with these settings."""
        self.setup, self.shown = setup, None
        self.patience = self._lasted = 0.0
        self._busy = True  # nothing happens until the parts are there
        self._held.clear()
        self._waiting.clear()
        self.store, _ = open_store(self.directory, self.clock.now())
        self.store.read("PRAGMA synchronous=OFF")
        self._write_trust()
        committing = Interrupted(
            self.store,
            self._committing,
            only="commit",
            # What is committed is what the bridge goes by, also while the poll goes on.
            on_answer=lambda: self._shows(self.imds.served),
        )
        self.current, self.poller = state_and_poller(
            self.store, self.imds, self.clock, committing=committing
        )
        self.outbox = Outbox(self.store)
        self.outbox.register(
            {
                name: Recipient(kind=kind, accepts=self._accepts(name))
                for name, (kind, _) in setup.sinks.items()
            }
        )
        slow: Store = Interrupted(self.store, self.interrupt)  # type: ignore[assignment]
        self.approvals = approvals_of(
            self.current,
            ApprovalStore(slow, self.clock.now()),
            self.imds,
            self.clock,
            rules=setup.rules,
            acknowledged=self._asks_outbox,
            trust=self._root / "trust.json",
        )
        self.approval_worker = approval_worker_of(self.approvals, self.clock)
        self._busy = False

    def restart(self, setup: Setup) -> None:
        """Another run, perhaps with other settings."""
        self.counts["restarts"] += 1
        self.end()
        self.clock.advance(1)
        self.begin(setup)

    def copy(self, setup: Setup) -> None:
        """The disk is copied between two runs."""
        self.end()
        shutil.rmtree(self._root / "copy", ignore_errors=True)
        ignored = shutil.ignore_patterns("ballast")
        shutil.copytree(self.directory, self._root / "copy", ignore=ignored)
        self._copy = (set(self._ids), self._read_up_to, dict(self.appeared))
        self.begin(setup)

    def put_back(self, setup: Setup) -> None:
        """The disk is put back to its earlier copy between two runs."""
        if self._copy is None:
            return
        self.counts["disks put back"] += 1
        self.end()
        shutil.rmtree(self.directory)
        shutil.copytree(self._root / "copy", self.directory)
        self._ids, self._read_up_to = set(self._copy[0]), self._copy[1]
        # That disk does not know that an event has ended and returned since.
        self.appeared |= self._copy[2]
        self.begin(setup)

    def end(self) -> None:
        """The run ends."""
        self.disk(full=False)
        self.check_ids()
        self.counts["records"] += self.store.head
        self.store.close()

    # What others do, at any moment

    def interrupt(self) -> None:
        """The approval worker waits for the disk or for IMDS: the rest of the world may go on."""
        if not self._busy and self.random.random() < INTERRUPTED:
            self._busy = True
            try:
                for _ in range(self.random.randint(1, 3)):
                    self.other()
            finally:
                self._busy = False

    def hang(self, event_id: str) -> None:
        """A POST has no answer for seconds, in which polls go on."""
        self.counts["hanging POSTs"] += 1
        for _ in range(HANG_SECONDS):
            self.interrupt()
            self.poll()
        fails("timeout")(event_id)

    def say(self, event_id: str, entry: Mapping[str, Any] | None) -> None:
        """From now on IMDS says this of an event, or that there is none."""
        if entry is None:
            self.imds.events_now.pop(event_id, None)
        else:
            self.imds.events_now[event_id] = {"EventId": event_id, **entry}

    def reorder(self, event_id: str) -> None:
        """Nothing changes about an event but the order of its VMs."""
        now = self.imds.events_now.get(event_id)
        if now and isinstance(now["Resources"], list):
            now["Resources"] = now["Resources"][::-1]

    def name_twice(self, event_id: str, changes: Mapping[str, Any]) -> None:
        """A second entry of an event, in another case and with these changes."""
        if event_id in self.imds.events_now:
            now = self.imds.events_now[event_id]
            self.imds.extra = [{**now, **changes, "EventId": event_id.lower()}]

    def hide(self, event_id: str) -> None:
        """An entry without an EventId stands where an event was."""
        self.imds.events_now.pop(event_id, None)
        self.imds.extra = [{"EventStatus": "Scheduled"}]

    def clear(self) -> None:
        """Each entry has an EventId of its own."""
        self.imds.extra = []

    def poll(self) -> None:
        """A poll a second later, with its commit; then the approval worker is told."""
        self.clock.advance(1)
        if self._polling:
            return
        self._polling = True
        self._asked_at = self.real
        try:
            good = self.poller.run()
        finally:
            self._polling = False
        self.counts["documents"] += 1
        if good:
            lasted = self.real - self._asked_at
            self.patience, self._lasted = min(lasted, self._lasted, MAX_PATIENCE_SECONDS), lasted
        self._shows(self.imds.served if good else None)
        tell_poll(self.approval_worker, answered=good)

    def answering(self) -> None:
        """IMDS has made its document; now and then the answer comes seconds later, and the rest of
        the world goes on.
        """
        if self.random.random() < SLOW:
            self.counts["slow answers"] += 1
            begun, since = self._begun, self.clock.monotonic()
            for _ in range(self.random.choice([1, 3, 8])):
                self.clock.advance(1.0)
                self._meanwhile()
            if self._working:  # it waits for something else
                self._begun = begun + self.clock.monotonic() - since

    def poll_fails(self) -> None:
        """IMDS has an error in place of a document."""
        self.imds.silent = True
        self.poll()
        self.imds.silent = False

    def many_end(self) -> None:
        """Many events of other VMs appear, and end."""
        for number in range(MANY):
            entry = {"EventId": f"M-{number}", "EventStatus": "Scheduled", "Resources": ["web_9"]}
            self.imds.events_now[f"M-{number}"] = entry
        self.poll()
        for number in range(MANY):
            self.imds.events_now.pop(f"M-{number}", None)
        self.poll()

    def wait(self, seconds: float) -> None:
        """Time passes without a poll; it is no work of the approver, whatever it waits for."""
        self.clock.advance(seconds)
        if self._working:
            self._begun += seconds

    def freeze(self, seconds: float) -> None:
        """The process stands still, and every clock goes on."""
        self._stands_still(lambda: self.wait(seconds))

    def suspend(self, seconds: float) -> None:
        """The machine is suspended: the monotonic clock stands still, and the kernel knows."""
        self._stands_still(lambda: self.clock.suspend(seconds))

    def pause(self, seconds: float) -> None:
        """The host pauses the VM: only the wall clock goes on, set by the host."""
        self._stood_still += seconds
        self._stands_still(lambda: self.clock.jump(seconds))

    def _stands_still(self, stand_still: Callable[[], None]) -> None:
        self.counts["standstills"] += 1
        watch = Watch(self.clock)
        stand_still()
        self._meanwhile(self.act)  # before the bridge looks at its clocks
        self.current.gaps.note_standstill(watch.tick().pause)

    def set_clock(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.clock.jump(seconds)

    def trust(self, names: frozenset[str] | None) -> None:
        """From now on these keys are in the trust file; None: it cannot be read."""
        self.trusted = names
        self._write_trust()

    def disk(self, *, full: bool) -> None:
        """The disk takes nothing, or takes everything again."""
        self.store.read(f"PRAGMA query_only={'ON' if full else 'OFF'}")
        self._waiting = dict.fromkeys(self._waiting, self._seconds_of_work())

    def serve(self, sink: str, answer: str) -> None:
        """A sink's worker hands over what there is, while the far end answers so; `hold`: it takes
        its time, and answers the next time.
        """
        for _ in range(5):
            batch = self._held.pop(sink, None) or self.outbox.next(sink, 2)
            if batch is None:
                return
            self._answer(sink, batch, answer)
            if answer not in ("acknowledge", "refuse"):
                return

    def _answer(self, sink: str, batch: Batch, answer: str) -> None:
        count = {"acknowledge": len(batch.records), "some": 1}.get(answer, 0)
        kind, _ = self.setup.sinks[sink]
        self.acknowledged |= {(sink, kind, record.id) for record in batch.records[:count]}
        if count:
            self.outbox.move_past(sink, batch, count)
        elif answer == "refuse":
            self.outbox.mark_dead(
                sink, batch.records[0].sequence, reason="no", attempts=1, now=self.clock.now()
            )
        elif answer == "hold":
            self._held[sink] = batch

    def drop(self, sink: str) -> None:
        """A person forgets a sink's dead records."""
        self.outbox.dead.drop(sink, None)

    def retry(self, sink: str) -> None:
        """A person has a sink's dead records tried again."""
        self.outbox.retry(sink, None)

    def post_goes(self, how: str) -> None:
        """What the POST that comes next is answered."""
        ways = {
            "is lost": self.imds.lose_answer,
            "has no effect": lambda event_id: None,
            "hangs": self.hang,
            "takes it": self.imds.take,
        }
        self.imds.failures.append(ways.get(how) or fails(how))

    # What the approval worker is asked for

    def command(self, event_id: str, back: int, signer: str, lifetime: int) -> None:
        """A command about the newest record of an event, or about one so many before it."""
        record = self.record(event_id, back)
        if record is None:
            return
        jti, now = f"jti-{len(self.words)}", int(self.clock.now().timestamp())
        fingerprint = record["data"]["fingerprint"]
        self.words[jti] = CommandClaims(event_id.casefold(), fingerprint, signer, now + lifetime)
        self.sent.append(SIGNERS[signer].approve(record, now=now, jti=jti, exp=now + lifetime))
        self.again(-1)

    def again(self, place: int) -> None:
        """A token that was sent before, by anybody who saw it."""
        if not self.sent:
            return
        number = self.counts["commands"]
        message = CommandMessage(
            token=self.sent[place % len(self.sent)],
            channel="mqtt",
            on_settled=lambda: self._settled(number),
        )
        if self.approval_worker.command(message):
            self.counts["commands"] += 1
            self._waiting[number] = self._seconds_of_work()

    def _settled(self, number: int) -> None:
        self._waiting.pop(number, None)

    def person(self, event_id: str, back: int) -> None:
        """A person on the VM approves what the newest record said, or one before it."""
        record = self.record(event_id, back)
        if record is not None and not self._working:
            seen = record["data"]["fingerprint"]
            with suppress(LookupError, StoreError):
                made = self.approvals.local(event_id, user="anna", fingerprint=seen)
                self.people[made.jti] = CommandClaims(event_id.casefold(), seen, "anna", 0)

    def work(self, turns: int = 12) -> None:
        """The approval worker does what there is to do, for so many rounds at most."""
        if self._working:
            return
        self._begun = self.clock.monotonic()
        self._working = True
        try:
            for _ in range(turns):
                if not has_work(self.approval_worker):
                    return
                self._begun = self.clock.monotonic()
                run_once(self.approval_worker)
                self._worked += self.clock.monotonic() - self._begun
                self._begun = self.clock.monotonic()
                self.counts["turns"] += 1
                longest = self._worked - min(self._waiting.values(), default=self._worked)
                assert longest <= MAX_WAIT_SECONDS, f"a command waits for {longest} s of work"
        finally:
            self._working = False

    def _seconds_of_work(self) -> float:
        """How long the approval worker has worked until now, in all."""
        return self._worked + (self.clock.monotonic() - self._begun if self._working else 0.0)

    def finish(self) -> None:
        """All is well at last, nobody does anything, and every event is over: every approval has
        its end.
        """
        self._busy = True
        self.disk(full=False)
        self.imds.hanging = False
        self.imds.failures.clear()
        self.imds.extra.clear()
        self.imds.events_now.clear()
        self.trust(frozenset(SIGNERS))
        for _ in range(2):
            self.poll()
            self.work()
        assert self._waiting == {}, "a command that was never taken"

    # What can be read

    def record(self, event_id: str, back: int = 0) -> dict[str, Any] | None:
        """The newest record of an event, or the one so many before it, as far as there are any."""
        rows = self.store.read(
            "SELECT body FROM records WHERE event = ? ORDER BY sequence DESC LIMIT ?",
            (event_id.casefold(), back + 1),
        )
        return json.loads(rows[-1][0]) if rows else None

    def receipts(self) -> list[dict[str, Any]]:
        """What was told of approvals, oldest first."""
        rows = self.store.read(
            "SELECT body FROM records WHERE type = 'seb.approval.v1' ORDER BY sequence"
        )
        return [json.loads(text)["data"] for (text,) in rows]

    def accepted(self, event_id: str) -> list[tuple[str, str]]:
        """The jti and the actor of each open approval of an event."""
        rows = self.store.read(
            "SELECT jti, actor FROM approvals WHERE lower(event) = ? AND state = 'accepted'",
            (event_id.casefold(),),
        )
        return [(jti, actor) for jti, actor in rows]

    def check_ids(self) -> None:
        """No id stands for two records of one disk, or for two facts over all disks."""
        rows = self.store.read(
            "SELECT sequence, id, body FROM records WHERE sequence > ? ORDER BY sequence",
            (self._read_up_to,),
        )
        for sequence, made, text in rows:
            assert made not in self._ids, f"an id that is used twice: {text}"
            fact = _fact(json.loads(text))
            assert self._facts.setdefault(made, fact) == fact, f"an id of two facts: {text}"
            self._ids.add(made)
            self._read_up_to = sequence

    def _asks_outbox(self, sink: str, event: str) -> bool:
        self.interrupt()
        answer = self.outbox.has_acknowledged(sink, event)
        self.interrupt()
        return answer

    def _accepts(self, sink: str) -> Accepts:
        _, types = self.setup.sinks[sink]
        return lambda kind, *_: any(fnmatchcase(kind, each) for each in types)

    def _committing(self) -> None:
        """The approval worker works just before a poll commits, or just before the poll says so."""
        if self.random.random() < INTERRUPTED:
            self._meanwhile(self.act)

    def _meanwhile(self, *more: Other) -> None:
        """Something happens, and the approval worker works, unless it waits itself."""
        if not self._busy:
            self._busy = True
            try:
                for each in more or (self.other, self.act):
                    each()
                self.work(2)
            finally:
                self._busy = False

    def _shows(self, document: Sequence[dict[str, Any]] | None) -> None:
        self.shown = None if document is None else list(document)
        if document is None:
            return
        self.shown_at = self._asked_at
        ids = [each.get("EventId") for each in document]
        keys = {each.casefold() for each in ids if each is not None}
        for key in keys - self.appeared.keys():
            self.appeared[key] = self.real
        if None not in ids:
            for key in self.appeared.keys() - keys:
                del self.appeared[key]

    def _write_trust(self) -> None:
        text = "{" if self.trusted is None else jwks(*(SIGNERS[each] for each in self.trusted))
        (self._root / "trust.json").write_text(text)


def _fact(record: Mapping[str, Any]) -> str:
    """What a record tells, without what two observations of the same may differ in."""
    data = record["data"]
    if record["type"].startswith("seb.event."):
        # An event's first record is the same fact as often as its fingerprint is.
        first = data["revision"] == 1
        names = ("transition", "revision", "fingerprint") if first else data.keys() - _OF_THE_MOMENT
        data = {name: data[name] for name in names}
    return json.dumps([record["type"], record["subject"], data], sort_keys=True)
