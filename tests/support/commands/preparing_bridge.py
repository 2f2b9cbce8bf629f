"""A bridge with a sink that prepares, whose polls a test makes by hand."""

from pathlib import Path
from typing import Final

from support.documents.documents import NOT_BEFORE, FakeClock, ScriptedImds, body, entry
from support.imds.poller_bench import state_and_poller

from bridge.imds.client import ImdsError
from bridge.preparation.open_preparations import PreparingSpec
from bridge.preparation.preparations import Preparations
from bridge.store.opening import FILE_NAME, open_store
from bridge.store.outbox import Outbox
from bridge.store.recipient import Recipient
from wire.record import Record, read_record

LEAD: Final = 120.0
NOTICE: Final = 900.0
"""Seconds from the first poll until NOT_BEFORE."""
SILENCE: Final = ImdsError("no: http_503", reason="http_503")


class PreparingBridge:
    """A bridge with a sink that prepares, whose polls a test makes by hand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.clock = FakeClock()
        self.imds = ScriptedImds(body(entry(not_before=NOT_BEFORE)))
        self.begin()

    def begin(self, kind: str = "program") -> None:
        """Begin a run with a sink of that kind."""
        self.store, _ = open_store(self._directory, self.clock.now())
        self.current, self._poller = state_and_poller(self.store, self.imds, self.clock)
        self.outbox = Outbox(self.store)
        spec = PreparingSpec(sink="drain", kind=kind, lead=LEAD)
        self.preparations = Preparations(spec, self.store, self.current, self.clock)
        self.outbox.register({"drain": Recipient(kind=kind, prepares=True)})
        self.preparations.adopt(self.outbox)

    def lose(self, directory: Path) -> None:
        """Delete the store, and begin a run."""
        self.store.close()
        (directory / FILE_NAME).unlink()
        self.begin()

    def change_kind(self, kind: str) -> None:
        """Begin a run with a sink of another kind under the same name."""
        self.store.close()
        self.begin(kind)

    def prepare_no_more(self) -> None:
        """Begin a run in which the sink gets all records, and prepares nothing."""
        self.store.close()
        self.store, _ = open_store(self._directory, self.clock.now())
        self.outbox = Outbox(self.store)
        self.outbox.register({"drain": Recipient(kind="program", prepares=False)})

    def records(self) -> list[Record]:
        """Return all records of the store."""
        rows = self.store.read("SELECT body FROM records ORDER BY sequence")
        return [read_record(row[0]) for row in rows]

    def poll(self, said: bytes | Exception, *, after: float = 0.0) -> list[str | None]:
        """Poll so many seconds later with this answer; return the state of each preparation."""
        self.clock.advance(after)
        self.look(said)
        self.preparations.follow()
        return self.states()

    def look(self, said: bytes | Exception) -> None:
        """Poll with this answer, without following it yet."""
        self.imds.said = said
        self._poller.run()

    def leave_and_return(self) -> None:
        """Poll twice: the event names another VM, and then this one again."""
        self.look(body(entry(resources=("web_9",)), incarnation=2))
        self.look(body(entry(), incarnation=3))

    def states(self) -> list[str | None]:
        """Return the state of each preparation."""
        return [self.preparations.state_of(each) for each in self.current.events.values()]
