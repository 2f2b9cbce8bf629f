"""The transitions between the tracked events and a new document. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from bridge.events.tracked import Measured, TrackedEvent
from bridge.imds.document import Document, ScheduledEvent
from wire.event import EVENT_FIELDS, UNKNOWN_STATUS, azure_name
from wire.strictjson import same_json

TransitionName = Literal["scheduled", "updated", "started", "ended"]

# The fields that a record has; any other field of IMDS's entry is compared as it came.
_FIELDS: Final = {azure_name(name): name for name in EVENT_FIELDS if name != "eventId"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PollContext:
    """The circumstances of one poll of IMDS."""

    now: datetime
    vm_name: str
    uptime: float | None = None
    """The machine's uptime, in seconds."""
    gap_seconds: float | None = None
    """Seconds since the last good poll; None for the very first."""
    is_continuous: bool = False
    """Whether the last good poll is recent enough to tell how an event ended."""
    is_boot_known: bool = False
    """Whether a restart of this VM would have been noticed."""
    approved: Mapping[str, int] = field(default_factory=dict)
    """The newest revision in which IMDS may have been asked here to start an event, by key; filled
    only for events that end.
    """
    due: frozenset[str] = frozenset()
    """Keys of events whose time has come, even if the clock was set back since; filled only for
    events that end.
    """
    revisions: Mapping[str, int] = field(default_factory=dict)
    """The last revision of events that return after they were forgotten, by key."""
    latency_ms: float | None = None
    incarnation: int | None = None
    previous_incarnation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of one event, and what is known of the event from then on."""

    kind: TransitionName
    tracked: TrackedEvent
    changed: tuple[str, ...] = ()
    goes_on_without_this_vm: bool = False
    """Whether an event that stays pending named this VM before, and no longer does. An event that
    ended because of that has `tracked.goes_on_without_this_vm`.
    """

    @property
    def concerns_this_vm(self) -> bool:
        """Whether a reader who follows only events of this VM needs it: the event names this VM, or
        no longer does, or ends and has named it.
        """
        ended = self.kind == "ended" and self.tracked.named_before
        return self.tracked.affects_this_vm or self.goes_on_without_this_vm or ended


def diff(
    tracked: Mapping[str, TrackedEvent], document: Document, poll: PollContext
) -> list[Transition]:
    """Return the transitions from the known events to the document: first the ends, then the rest
    in the document's order.
    """
    transitions = list(_endings(tracked, document, poll))
    for key, event in document.events.items():
        before = tracked.get(key)
        if before is None or not before.pending:
            transitions.append(_appearance(before, event, poll))
            continue
        changed = _changed(before.event, event)
        if not changed and before.affects_this_vm != event.affects(poll.vm_name):
            # The VM has another name now, by which an unchanged event does or does not name it.
            changed = ("affectsThisVm",)
        if changed:
            starts = "eventStatus" in changed and event.event_status == "Started"
            after = _seen_again(before, event, poll)
            transitions.append(
                Transition(
                    kind="started" if starts else "updated",
                    tracked=after,
                    changed=() if starts else changed,
                    goes_on_without_this_vm=(before.affects_this_vm and not after.affects_this_vm),
                )
            )
    return transitions


def only_naming(document: Document, vm_name: str) -> Document:
    """Return the document without the events that do not name the VM."""
    events = {key: event for key, event in document.events.items() if event.affects(vm_name)}
    without_this_vm = frozenset(document.events.keys() - events.keys())
    return replace(document, events=events, without_this_vm=without_this_vm)


def _endings(
    tracked: Mapping[str, TrackedEvent], document: Document, poll: PollContext
) -> Iterable[Transition]:
    gone = tracked.keys() - document.events.keys()
    if not document.is_complete:
        gone &= document.without_this_vm  # IMDS lists these, and they name other VMs
    for key, before in tracked.items() if gone else ():
        if key in gone and before.pending:
            without_this_vm = key in document.without_this_vm
            after = replace(
                before,
                pending=False,
                goes_on_without_this_vm=without_this_vm,
                revision=before.revision + 1,
                status=UNKNOWN_STATUS if without_this_vm else _how_it_ended(before, poll),
            )
            yield Transition(kind="ended", tracked=after)


def _how_it_ended(before: TrackedEvent, poll: PollContext) -> str:
    """Return the status of an event that has disappeared. Azure: IMDS has no Completed; an event
    that is over is simply gone.
    """
    # What happened to this VM shows how the event went only if the event names it.
    measured = before.measured if before.affects_this_vm else Measured()
    is_due = before.event.key in poll.due
    early = before.not_before is not None and poll.now < before.not_before and not is_due
    # What was approved before the event returned says nothing about how it ends this time.
    approved = poll.approved.get(before.event.key, 0) >= before.appeared
    match before.event.event_status:
        case "Started":
            return "Completed"
        case "Completed" | "Canceled" as status:
            return status
        case "Scheduled" if early and poll.is_continuous and not approved:
            return "Canceled"
        case "Scheduled" if measured.restarted or measured.pause_seconds:
            return "Completed"
        case _:
            # A poll a second can miss Started; what was not seen is not guessed.
            return UNKNOWN_STATUS


def _appearance(
    before: TrackedEvent | None, event: ScheduledEvent, poll: PollContext
) -> Transition:
    # Azure: on a hardware failure an event may appear directly as Started.
    kind: TransitionName = "started" if event.event_status == "Started" else "scheduled"
    if before is not None:
        # What was measured before it ended says nothing about how it ends this time.
        again = replace(
            before,
            appeared=before.revision + 1,
            first_seen=poll.now,
            uptime=poll.uptime,
            not_before=None,
            affects_this_vm=False,
            named_before=False,
            goes_on_without_this_vm=False,
            measured=Measured(restarted=False if poll.is_boot_known else None),
        )
        return Transition(kind=kind, tracked=_seen_again(again, event, poll))
    revision = poll.revisions.get(event.key, 0) + 1
    first = TrackedEvent(
        event=event,
        status=event.event_status,
        revision=revision,
        appeared=revision,
        state_since=revision,
        first_seen=poll.now,
        uptime=poll.uptime,
        not_before=event.not_before,
        affects_this_vm=event.affects(poll.vm_name),
        measured=Measured(restarted=False if poll.is_boot_known else None),
    )
    return Transition(kind=kind, tracked=first)


def _seen_again(before: TrackedEvent, event: ScheduledEvent, poll: PollContext) -> TrackedEvent:
    after = replace(
        before,
        event=event,
        status=event.event_status,
        revision=before.revision + 1,
        not_before=event.not_before or before.not_before,
        affects_this_vm=event.affects(poll.vm_name),
        named_before=before.affects_this_vm or before.named_before,
        pending=True,
    )
    is_same = before.pending and before.fingerprint == after.fingerprint
    return after if is_same else replace(after, state_since=after.revision)


def _changed(before: ScheduledEvent, after: ScheduledEvent) -> tuple[str, ...]:
    """Return the names of the fields that differ: a record's names, or IMDS's own for unknown
    fields.
    """
    if same_json(before.raw, after.raw):
        return ()
    old = before.to_wire()
    new = after.to_wire()
    old["resources"] = sorted(before.resources)
    new["resources"] = sorted(after.resources)
    names = [
        name
        for azure, name in _FIELDS.items()
        if old[name] != new[name]
        or not same_json(_unread(before, azure, new[name]), _unread(after, azure, new[name]))
    ]
    others = {*before.raw, *after.raw} - {*_FIELDS, "EventId"}
    missing = object()
    names += sorted(
        name
        for name in others
        if not same_json(before.raw.get(name, missing), after.raw.get(name, missing))
    )
    return tuple(names)


def _unread(event: ScheduledEvent, azure: str, value: object) -> object:
    """Return the text of a field that could not be read: `raw` shows people what our null hides."""
    raw = event.raw.get(azure)
    if azure == "Resources":
        return None if event.names_its_vms else raw or None
    blank = raw in (None, -1) or (isinstance(raw, str) and not raw.strip())
    return raw if value in (None, UNKNOWN_STATUS) and not blank else None
