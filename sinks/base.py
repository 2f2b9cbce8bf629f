"""The contract between the dispatcher and a destination. It never says how a destination works."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
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
    """The bridge around a sink, as far as the sink may know it."""

    identity: Callable[[], VmIdentity]
    """The identity of this VM, as IMDS gave it last; may be called from any thread."""
    now: Callable[[], datetime]
    site: str = "default"
    version: str = "0"
    instance_id: str = ""
    pending: Callable[[], Sequence[PendingEvent]] = tuple
    """The pending events as last committed; may be called from any thread. It is never older than
    the records that a sink gets."""
    has_polled: Callable[[], bool] = lambda: True
    """Whether IMDS has given a document in this run; before that, an event may be pending that a
    new store does not know."""
    time_of: Callable[[str], datetime | None] = lambda _: None
    """The time by which a pending event, by its key, is near: later than `now` where the clock was
    set back since the event appeared. None: it is not known, and `now` counts. Any thread may ask.
    """
    prepares: bool = False
    """Whether a sink of this bridge prepares its VM."""
    command: CommandSource = no_commands
    """Takes a signed command that came in over the sink's connection."""
    verifies: Callable[[], bool] = lambda: True
    """Whether a command can be verified now; may be called from any thread."""

    @property
    def vm(self) -> VmIdentity:
        """The identity of this VM now: its size and tags may change while the bridge runs."""
        return self.identity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of `seb check`: what was looked at, how it stands, and what to do about it."""

    level: Literal["ok", "warn", "fail"]
    text: str
    remedy: str | None = None

    @classmethod
    def ok(cls, text: str) -> Self:
        """It is as it should be."""
        return cls(level="ok", text=text)

    @classmethod
    def warn(cls, text: str, remedy: str) -> Self:
        """It works, but not as the owner may think."""
        return cls(level="warn", text=text, remedy=remedy)

    @classmethod
    def fail(cls, text: str, remedy: str | None) -> Self:
        """It does not work."""
        return cls(level="fail", text=text, remedy=remedy)

    @classmethod
    def problem(cls, problem: Problem, remedy: str) -> Self:
        """It does not work; `remedy` is for a problem that names none."""
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
        """A control plane's way to a VM through this destination; None without commands."""
        del settings, site, vm_id
        return None

    @property
    def deadline(self) -> float:
        """Seconds after which a call counts as stuck."""
        return 30.0

    @property
    def wants_heartbeats(self) -> bool:
        """Whether the sink gets heartbeats if its `types` are not given."""
        return True

    def accepts(self, record_type: str, affects_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Whether a record is for this sink, by its type and its event (None: it has none).

        `affects_this_vm` is the record's `concernsThisVm`: true also for the record by which an
        event stops to name this VM, and for its end.
        """
        if self.settings.affects_this_vm_only and affects_this_vm is False:
            return False
        if self.settings.types is not None:
            return any(fnmatchcase(record_type, glob) for glob in self.settings.types)
        return self.wants_heartbeats or record_type != BRIDGE_HEARTBEAT

    def open(self) -> None:
        """Get ready, before the first delivery and after each `close`. Raises `SinkError`."""

    @abstractmethod
    def deliver(self, records: Sequence[Record]) -> None:
        """Hand over at most `BATCH` records, in order; return once all are acknowledged."""

    def announce(self, record: Record) -> None:
        """Show an event for which this sink, which prepares (`PREPARES`), has not been asked to
        prepare. Most have nothing to show. Raises as `deliver`.
        """

    def maintain(self) -> None:
        """Called every 5 seconds or so when idle or waiting, and after each delivery. Raises as
        `deliver`.
        """

    def check(self) -> Sequence[Check]:
        """Look at the destination without sending a record; an unreachable one is a `fail` line."""
        return ()

    def abort(self) -> None:
        """Cut a stuck call, from another thread: returns at once and never raises."""

    def close(self) -> None:
        """Let go of everything. Called once after each successful or failed `open`."""
