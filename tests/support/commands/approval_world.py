"""A bridge's approvals among everything that moves: an IMDS that lies, sinks in each mood, settings
that change from run to run, and POSTs during which all the rest goes on. Nothing runs by itself.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from support.commands.approving import ObedientImds, approvals_of, fails
from support.commands.control_plane import Signer, jwks
from support.documents.documents import FakeClock
from support.imds.polling import looking

from bridge.approval.ledger import Ledger
from bridge.approval.policy import Rule
from bridge.store.batch import Batch
from bridge.store.database import Store
from bridge.store.opening import open_store
from bridge.store.outbox import Accepts, Outbox, Recipient
from sinks.base import CommandMessage

SIGNERS = {"one": Signer("key-1"), "two": Signer("key-2", issuer="https://other.example")}
"""Made once: a key costs time."""

Step = tuple[Any, ...]
"""The name of a method of `World`, and what it is called with."""


@dataclass(frozen=True)
class Setup:
    """The settings of one run: each sink's kind and types by its name, rules and trusted keys."""

    sinks: Mapping[str, tuple[str, tuple[str, ...]]]
    rules: tuple[Rule, ...]
    trusted: tuple[str, ...]


class LyingImds(ObedientImds):
    """It says what it likes of a POST, and tells of each one before it answers."""

    def __init__(self, asked: Callable[[str], None]) -> None:
        super().__init__()
        self._asked = asked

    def start(self, event_id: str) -> None:
        self._asked(event_id)
        super().start(event_id)


class Interrupted:
    """A store whose calls let the rest of the world go on before them, and after a commit. Not
    after a read: between the last look at the store and the POST nothing waits.
    """

    def __init__(self, of: Any, pause: Callable[[], None], *, only: str = "") -> None:
        self._of = of
        self._pause = pause
        self._only = only

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found) or self._only not in ("", name):
            return found

        def call(*args: Any, **more: Any) -> Any:
            self._pause()
            answer = found(*args, **more)
            if name != "read":
                self._pause()
            return answer

        return call


class World:
    """One bridge and all that it deals with; `judge` is told of each POST when it goes out."""

    def __init__(self, directory: Path, judge: Callable[[str], None]) -> None:
        self._directory = directory
        self._judge = judge
        self.clock = FakeClock()
        self.imds = LyingImds(self._asked)
        self.meanwhile: list[list[Step]] = []
        """What happens at the next points at which the approver waits for something."""
        self.while_committing: list[list[Step]] = []
        """What the approver does just before the commit of a poll, and just after it."""
        self.acknowledged: set[tuple[str, str, str]] = set()
        """Name and kind of a sink, and the id of a record that it has acknowledged."""
        self.words: set[tuple[str, str, str]] = set()
        """What was said of which state: event, fingerprint, and the signer or `person`."""
        self.sent: list[bytes] = []
        """Every token, in order."""
        self._held: dict[str, Batch] = {}
        self._busy = False

    def begin(self, setup: Setup) -> None:
        """A run with these settings."""
        self.setup = setup
        self._held.clear()
        self.store, _ = open_store(self._directory, self.clock.now())
        (trust := self._directory / "trust.json").write_text(
            jwks(*(SIGNERS[name] for name in setup.trusted))
        )
        committing = Interrupted(self.store, self._committing, only="commit")
        self.current, self.poller = looking(
            self.store, self.imds, self.clock, committing=committing
        )
        self.outbox = Outbox(self.store)
        self.outbox.register(
            {
                name: Recipient(kind=kind, accepts=self._accepts(name))
                for name, (kind, _) in setup.sinks.items()
            }
        )
        slow: Store = Interrupted(self.store, self._pause)  # type: ignore[assignment]
        self.approvals = approvals_of(
            self.current,
            Ledger(slow, self.clock.now()),
            self.imds,
            self.clock,
            rules=setup.rules,
            acknowledged=self._asks_outbox,
            trust=trust,
        )

    def _asks_outbox(self, sink: str, event: str) -> bool:
        self._pause()
        answer = self.outbox.acknowledged(sink, event)
        self._pause()
        return answer

    def restart(self, setup: Setup) -> None:
        """Another run, perhaps with other settings."""
        self.store.close()
        self.clock.advance(1)
        self.begin(setup)

    # What others do, at any moment

    def do(self, steps: Sequence[Step]) -> None:
        """These, one after the other."""
        for name, *args in steps:
            getattr(self, name)(*args)

    def say(self, event_id: str, entry: Mapping[str, Any] | None) -> None:
        """From now on IMDS says this of an event, or that there is none."""
        if entry is None:
            self.imds.events_now.pop(event_id, None)
        else:
            self.imds.events_now[event_id] = {"EventId": event_id, **entry}

    def poll(self) -> None:
        """A look at IMDS, with its commit."""
        self.clock.advance(1)
        self.poller.run()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

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
            self.outbox.delivered(sink, batch, count)
        elif answer == "refuse":
            self.outbox.park(
                sink, batch.records[0].sequence, reason="no", attempts=1, now=self.clock.now()
            )
        elif answer == "hold":
            self._held[sink] = batch

    def drop(self, sink: str) -> None:
        """A person forgets a sink's dead records."""
        self.outbox.dead.drop(sink, None)

    def retry(self, sink: str) -> None:
        """A person has a sink's dead records tried again."""
        self.outbox.dead.retry(sink, None)

    def post_goes(self, how: str) -> None:
        """What the POST that comes next is answered."""
        ways = {"is lost": self.imds.lose_answer, "has no effect": lambda event_id: None}
        self.imds.failures.append(ways.get(how) or fails(how))

    # What the approver does, while others do something else

    def look(self) -> None:
        """The look of the approver after a poll."""
        self.approvals.polled()

    def command(self, event_id: str, back: int, signer: str) -> None:
        """A command about the newest record of an event, or about one so many before it."""
        known = self.records(event_id)
        if not known:
            return
        record = known[max(0, len(known) - 1 - back)]
        self.words.add((event_id.casefold(), record["data"]["fingerprint"], signer))
        now = int(self.clock.now().timestamp())
        token = SIGNERS[signer].approve(record, now=now)
        self.sent.append(token)
        self.again(-1)

    def again(self, place: int) -> None:
        """A token that was sent before, by anybody who saw it."""
        if self.sent:
            token = self.sent[place % len(self.sent)]
            self.approvals.command(
                CommandMessage(token=token, channel="mqtt", settled=lambda: None, retained=False)
            )

    def person(self, event_id: str, back: int) -> None:
        """A person on the VM approves what the newest record said, or one before it."""
        known = self.records(event_id)
        if not known:
            return
        seen = known[max(0, len(known) - 1 - back)]["data"]["fingerprint"]
        self.words.add((event_id.casefold(), seen, "person"))
        with suppress(LookupError):
            self.approvals.local(event_id, user="anna", fingerprint=seen)

    # What can be read

    def records(self, event_id: str) -> list[dict[str, Any]]:
        """The records of an event, as consumers have them, oldest first."""
        rows = self.store.read(
            "SELECT body FROM records WHERE event = ? ORDER BY sequence", (event_id.casefold(),)
        )
        return [json.loads(text) for (text,) in rows]

    def receipts(self) -> list[dict[str, Any]]:
        """What was told of approvals, newest first."""
        rows = self.store.read(
            "SELECT body FROM records WHERE type = 'seb.approval.v1' ORDER BY sequence DESC"
        )
        return [json.loads(text)["data"] for (text,) in rows]

    def released(self, event_id: str) -> list[str]:
        """The VMs that the newest acceptance of an event's approval told to be released."""
        return next(
            list(each["resources"])
            for each in self.receipts()
            if each["state"] == "accepted" and each["evt"].casefold() == event_id.casefold()
        )

    def _accepts(self, sink: str) -> Accepts:
        _, types = self.setup.sinks[sink]
        return lambda kind, affects: any(fnmatchcase(kind, each) for each in types)

    def _asked(self, event_id: str) -> None:
        self._judge(event_id)
        self._pause()

    def _pause(self) -> None:
        self._others(self.meanwhile)

    def _committing(self) -> None:
        self._others(self.while_committing)

    def _others(self, turns: list[list[Step]]) -> None:
        if turns and not self._busy:
            self._busy = True
            self.do(turns.pop(0))
            self._busy = False
