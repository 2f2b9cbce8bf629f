"""A poller on a real store, a scripted IMDS and a clock moved by hand."""

from pathlib import Path

from support.documents.documents import VM, FakeClock, ScriptedImds, StandInImds

from bridge.events.poller import Poller
from bridge.events.state import CurrentState
from bridge.store.approvals import approved_revisions
from bridge.store.database import Store
from bridge.store.opening import open_store
from wire.observer import BridgeRun, Observer
from wire.record import Record, read_record


def records_of(store: Store) -> list[Record]:
    """Every record in a store."""
    rows = store.read("SELECT body FROM records ORDER BY sequence")
    return [read_record(body) for (body,) in rows]


def state_and_poller(
    store: Store,
    imds: StandInImds,
    clock: FakeClock,
    *,
    interval: float = 1.0,
    scope_self: bool = False,
    boot_id: str | None = "boot-1",
    committing: object = None,
) -> tuple[CurrentState, Poller]:
    """The state and the poller of a run on this store; `committing` stands in for it there."""
    current = CurrentState.after(
        store.last_seen(),
        Observer(
            vm=VM, node=None, bridge=BridgeRun(version="1.2.3", instance_id="run-1", site="default")
        ),
        clock,
        interval=interval,
        boot_id=boot_id,
        api_version=imds.api_version,
    )
    poller = Poller(
        imds,  # type: ignore[arg-type]  # it answers as a client does
        committing or store,  # type: ignore[arg-type]  # it answers as the store does
        current,
        clock,
        scope_self=scope_self,
        approved=lambda: approved_revisions(store),
        boot_id=boot_id,
    )
    return current, poller


class PollerBench:
    """One bridge's life: it may restart, with another boot id, and lose its store."""

    def __init__(self, directory: Path, *, scope_self: bool = False) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.imds = ScriptedImds()
        self.boot_id: str | None = "boot-1"
        self.scope_self = scope_self
        self.begin()

    def restart(self, *, boot_id: str | None = "boot-1", lost: Path | None = None) -> None:
        """Another run: on the same store, or on a new one in the directory `lost`."""
        self.store.close()
        self.boot_id = boot_id
        self.directory = lost or self.directory
        self.begin()

    def serve(self, document: bytes, *, after: float = 1.0) -> list[Record]:
        """The new records, once IMDS has served the document so many seconds later."""
        self.imds.said = document
        self.clock.advance(after)
        head = self.store.head
        assert self.poller.run()
        return [record for record in self.records() if record.sequence > head]

    def fails(self, error: Exception | bytes, *, after: float = 1.0) -> None:
        """A poll so many seconds later that goes wrong, and leaves everything as it was."""
        self.imds.said = error
        self.clock.advance(after)
        before = (self.store.head, dict(self.current.events))
        assert not self.poller.run()
        assert before == (self.store.head, dict(self.current.events))

    def records(self) -> list[Record]:
        """Every record in the store."""
        return records_of(self.store)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def begin(self) -> None:
        """A run on the store of the directory."""
        self.store, _ = open_store(self.directory, self.clock.now())
        self.current, self.poller = state_and_poller(
            self.store, self.imds, self.clock, scope_self=self.scope_self, boot_id=self.boot_id
        )


def summary(records: list[Record]) -> list[tuple[str, str | None]]:
    """The type of each record, without what all share, and its event's status."""
    return [
        (
            record.type.removeprefix("seb.").removesuffix(".v1"),
            record.data.get("event", {}).get("eventStatus"),
        )
        for record in records
    ]
