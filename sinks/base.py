"""The contract between the dispatcher and a destination. It does not say how a
destination works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Generic, Literal, Self, TypeVar

from sinks.command import CommandMessage, CommandSender, CommandSource, no_commands
from sinks.errors import Problem, SinkError, SinkPaused, SinkRejected
from sinks.settings import SinkSettings, read_secret
from sinks.shared.json_values import JsonDict, JsonList
from wire.record import BRIDGE_HEARTBEAT, Record
from wire.state import PendingEvent
from wire.vm import VmIdentity

__all__ = [
    "Check",
    "CommandMessage",
    "CommandSender",
    "CommandSource",
    "JsonDict",
    "JsonList",
    "Problem",
    "Sink",
    "SinkContext",
    "SinkError",
    "SinkPaused",
    "SinkRejected",
    "SinkSettings",
    "read_secret",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """The parts of the bridge that a sink may use."""

    identity: Callable[[], VmIdentity]
    """Returns the latest identity of this VM from IMDS; may be called from any thread."""
    now: Callable[[], datetime]
    site: str = "default"
    version: str = "0"
    instance_id: str = ""
    pending: Callable[[], Sequence[PendingEvent]] = tuple
    """Returns the pending events as last committed; may be called from any thread. They are never
    older than the records that a sink gets.
    """
    has_polled: Callable[[], bool] = lambda: True
    """Whether IMDS has sent a document in this run; before that, an event may be pending that a new
    store does not have.
    """
    time_of: Callable[[str], datetime | None] = lambda _: None
    """Returns the time against which the start of a pending event is measured, by the event's key.
    It is later than `now` if the clock was set back since the event appeared, and earlier if it was
    set forward a moment ago; None: use `now`. May be called from any thread.
    """
    prepares: bool = False
    """Whether a sink of this bridge prepares its VM."""
    command: CommandSource = no_commands
    """Accepts a signed command that arrived over the sink's connection."""
    verifies: Callable[[], bool] = lambda: True
    """Returns whether a command can be verified now; may be called from any thread."""

    @property
    def vm(self) -> VmIdentity:
        """The identity of this VM now: its size and tags may change while the bridge runs."""
        return self.identity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of `seb check`: what was checked, the result, and the remedy."""

    level: Literal["ok", "warn", "fail"]
    text: str
    remedy: str | None = None

    @classmethod
    def ok(cls, text: str) -> Self:
        """Return a line with a good result."""
        return cls(level="ok", text=text)

    @classmethod
    def warn(cls, text: str, remedy: str) -> Self:
        """Return a line for something that works, but perhaps not as its owner expects."""
        return cls(level="warn", text=text, remedy=remedy)

    @classmethod
    def fail(cls, text: str, remedy: str | None) -> Self:
        """Return a line for something that does not work."""
        return cls(level="fail", text=text, remedy=remedy)

    @classmethod
    def problem(cls, problem: Problem, remedy: str) -> Self:
        """Return a `fail` line for a problem; `remedy` is used if the problem has none."""
        return cls.fail(problem.what, problem.remedy or remedy)


S = TypeVar("S", bound=SinkSettings)


class Sink(ABC, Generic[S]):
    """A destination of records.

    The contract:
    - All methods but `abort` are called from one thread, one at a time; another sink's trouble
      never reaches this one.
    - `deliver` returns only when the destination has acknowledged every record of the batch. It
      is called with records in order, and again with the same records after a failure: the
      destination sees each record at least once, always with the same id and the same bytes.
    - `SinkError` means again later; `SinkRejected` means never again for this record; any other
      exception is a bug, is logged with its trace, and is treated as `SinkError`. After an error
      the sink is closed and opened again, unless a `SinkError` says `stays_open`.
    - A delivery that lasts longer than `deadline` is abandoned: `abort` is called, the thread is
      left to itself and a new sink is made. The old one is never used again.
    """

    KIND: ClassVar[str]
    """The word that selects this sink in the settings; also the entry point's name."""
    Settings: ClassVar[type[SinkSettings]] = SinkSettings
    """The frozen pydantic model of the sink's settings, with `extra="forbid"`."""
    BATCH: ClassVar[int] = 1
    """How many records `deliver` takes at most. Above 1, errors must say `delivered`."""

    def __init__(self, name: str, settings: S, context: SinkContext) -> None:
        self.name = name
        self.settings = settings
        self.context = context

    @classmethod
    def sender(cls, settings: S, *, site: str, vm_id: str) -> CommandSender | None:
        """Return a control plane's connection to a VM through this destination; None if it takes no
        commands.
        """
        del settings, site, vm_id
        return None

    @property
    def deadline(self) -> float:
        """Seconds after which a call is considered stuck."""
        return 30.0

    @property
    def wants_heartbeats(self) -> bool:
        """Whether the sink gets heartbeats if its `types` are not given."""
        return True

    def accepts(self, record_type: str, concerns_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Check whether the sink takes a record of this type. `concerns_this_vm` is the record's
        `concernsThisVm`: true also for the record that says that an event no longer names this VM,
        and for its end; None for a record without an event.
        """
        if not self.settings.choice.accepts(record_type, concerns_this_vm):
            return False
        is_heartbeat = record_type == BRIDGE_HEARTBEAT
        return not is_heartbeat or self.wants_heartbeats or self.settings.types is not None

    def open(self) -> None:
        """Prepare for deliveries; called before the first one and after each `close`. Raises
        `SinkError`.
        """

    @abstractmethod
    def deliver(self, records: Sequence[Record]) -> None:
        """Deliver at most `BATCH` records, in order; return once all are acknowledged."""

    def announce(self, record: Record) -> None:
        """Show an event for which this sink, which prepares (`PREPARES`), was not asked to prepare.
        Most sinks have nothing to show. Raises what `deliver` raises.
        """

    def maintain(self) -> None:
        """Look after the connection: called about every 5 seconds while the sink is idle or waits,
        and after each delivery. Raises what `deliver` raises.
        """

    def check(self) -> Sequence[Check]:
        """Examine the destination without sending a record; an unreachable one gives a
        `fail` line.
        """
        return ()

    def abort(self) -> None:
        """Stop a stuck call from another thread; return at once and never raise."""

    def close(self) -> None:
        """Release everything. Called after each `open`, whether it succeeded or failed. If it is
        called without an `open`, or once more, it does nothing.
        """
