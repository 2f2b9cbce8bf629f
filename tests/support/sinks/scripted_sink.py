"""A sink that does what a test tells it, and a bench that serves it with a worker."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from support.documents.documents import FakeClock
from support.store_helpers import NOW, bridge_draft, recipients

from bridge.config.load import SinkSpec
from bridge.delivery.dispatcher import Dispatcher
from bridge.delivery.health import Health
from bridge.store.database import Store
from bridge.store.outbox import Outbox
from sinks.base import Sink, SinkSettings
from sinks.samples import sample_context
from wire.record import BRIDGE_DEAD_LETTER, Record, RecordDraft

PATIENCE = 10.0
"""Seconds after which a test gives up on a thread."""


class Script:
    """What the sinks of one name do and did; it outlives each of them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.made = 0
        self.deadline = 30.0
        self.on_make: list[Exception | None] = []
        self.on_open: list[Callable[[], None] | BaseException | None] = []
        self.on_deliver: list[Callable[[], None] | BaseException | None] = []
        self.on_maintain: list[Callable[[], None] | BaseException | None] = []
        self.on_close: list[Callable[[], None] | BaseException | None] = []
        self._condition = threading.Condition()

    def play(self, call: str, acts: list[Any]) -> None:
        """Note the call, and do what is next."""
        with self._condition:
            self.calls.append(call)
            self.threads.add(threading.current_thread())
            act = acts.pop(0) if acts else None
            self._condition.notify_all()
        if isinstance(act, BaseException):
            raise act
        if act is not None:
            act()

    def took(self, records: Sequence[Record]) -> None:
        """These are acknowledged."""
        with self._condition:
            self.records.extend(records)
            self._condition.notify_all()

    def sequences(self) -> list[int]:
        """The places of what was acknowledged."""
        with self._condition:
            return [record.sequence for record in self.records]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; what the script notes is looked at at once."""
        with self._condition:
            for _ in range(int(PATIENCE / 0.02)):
                if condition():
                    return
                self._condition.wait(0.02)
        raise AssertionError(f"it did not happen; calls: {self.calls}")

    def wait_for_records(self, count: int) -> None:
        """Wait until so many are acknowledged."""
        self.wait_for(lambda: len(self.records) >= count)

    def wait_for_calls(self, call: str, count: int) -> None:
        """Wait until a call was made so often."""
        self.wait_for(lambda: self.calls.count(call) >= count)


class ScriptedSink(Sink[SinkSettings]):
    """Plays its script, which the test puts into `scripts` under the sink's name."""

    KIND = "scripted"
    BATCH: ClassVar[int] = 3
    scripts: ClassVar[dict[str, Script]] = {}

    def __init__(self, name: str, settings: SinkSettings, context: Any) -> None:
        super().__init__(name, settings, context)
        self.script = self.scripts[name]
        self.script.made += 1
        if self.script.on_make and (error := self.script.on_make.pop(0)):
            raise error

    @property
    def deadline(self) -> float:
        return self.script.deadline

    def open(self) -> None:
        self.script.play("open", self.script.on_open)

    def deliver(self, records: Sequence[Record]) -> None:
        self.script.play("deliver", self.script.on_deliver)
        self.script.took(records)

    def maintain(self) -> None:
        self.script.play("maintain", self.script.on_maintain)

    def abort(self) -> None:
        self.script.play("abort", [])

    def close(self) -> None:
        self.script.play("close", self.script.on_close)


class DispatcherBench:
    """A dispatcher with scripted sinks on a real store, and a clock that is moved by hand."""

    def __init__(self, store: Store, *names: str, draw: float = 1.0) -> None:
        self.clock = FakeClock(NOW)
        self.store = store
        self.outbox = Outbox(store)
        self.outbox.register(recipients(*names))
        self.urgent = False
        self.ask_urgent: Callable[[], bool] = lambda: self.urgent
        self.scripts = {name: Script() for name in names}
        ScriptedSink.scripts = self.scripts
        self._draw = draw
        self.specs = [
            SinkSpec(name=name, sink_class=ScriptedSink, settings=SinkSettings(kind="scripted"))
            for name in names
        ]
        self.dispatcher: Dispatcher

    def start(self) -> None:
        """Begin to deliver."""
        self.dispatcher = Dispatcher(
            self.specs,
            self.outbox,
            sample_context(),
            self.clock,
            urgent=lambda: self.ask_urgent(),  # noqa: PLW0108  # a test may change it
            dead_letter=self._dead_letter,
            redact=lambda text: text.replace("secret", "[secret]"),  # type: ignore[arg-type]
            draw=lambda: self._draw,
        )
        self.dispatcher.start()

    def commit(self, *drafts: RecordDraft) -> None:
        """Commit, and wake the sinks."""
        self.store.commit(drafts)
        if hasattr(self, "dispatcher"):
            self.dispatcher.wake()

    def wait_for_failure(self, name: str, failures: int = 1) -> Health:
        """Wait until a sink has failed so often in a row and waits for its next try."""
        health = self.dispatcher.health[name]
        self.scripts[name].wait_for(
            lambda: health.failures == failures and health.next_try_at is not None
        )
        return health

    def advance(self, seconds: float) -> None:
        """Move the clock, and let those that wait look at it."""
        self.clock.advance(seconds)
        self.dispatcher.wake()

    def finish(self, seconds: float = PATIENCE) -> bool:
        """End in good order, within so many real seconds; whether every sink did."""
        return not hasattr(self, "dispatcher") or self.dispatcher.finish(seconds)

    def _dead_letter(self, sink: str, record: Record, reason: str, attempts: int) -> RecordDraft:
        del sink, record, reason, attempts
        return bridge_draft(BRIDGE_DEAD_LETTER)
