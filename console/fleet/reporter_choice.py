"""Which reporter an event is shown by: a named VM that is heard, before everybody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from console.fleet.values import FleetEvent, LatestReport

Names = tuple[str, str]
"""Equal for two that name the same VMs: a hash of the names, and where they are unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReport:
    """What a VM that bears a name in its own report says of an event."""

    vm_id: str
    content_hash: str
    names_hash: str
    """Equal for two reporters that name the same VMs."""
    is_over: bool
    time: float
    is_heard: bool
    known_since: float
    """When the first word of the VM came in."""
    site: str
    folded: str
    """The VM's name, as names are compared."""
    place: str
    """Where the names are unique by which it names VMs."""

    @property
    def names(self) -> Names:
        """The VMs that it names."""
        return self.names_hash, self.place

    @property
    def age(self) -> tuple[float, str]:
        """The lower, the longer the VM has been known."""
        return self.known_since, self.vm_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """How many heard reporters, named or not, say one thing of an event in one place."""

    names_hash: str
    place: str
    content_hash: str
    is_over: bool
    count: int

    @property
    def names(self) -> Names:
        """The VMs that they name."""
        return self.names_hash, self.place


def is_contested(reports: Iterable[NamedReport]) -> bool:
    """Whether heard VMs that the event names do not agree which VMs it names, or on what is pending
    or over.
    """
    heard = [each for each in reports if each.is_heard]
    words = {(each.content_hash, each.is_over) for each in heard}
    open_ones = {each.content_hash for each in heard if not each.is_over}
    return len({each.names for each in heard}) > 1 or len(open_ones or words) > 1


def reporter_of(
    event: FleetEvent | None,
    reports: Sequence[NamedReport],
    support: Sequence[Support],
    fresh: Sequence[LatestReport],
) -> str | None:
    """The VM whose report shows an event; None if the newest report of all does.

    `event` is as it was shown until now, and `fresh` are the reports that came in now.
    """
    vm_id = chosen(reports, support)
    if vm_id is not None or (event is None and not fresh):
        return vm_id
    if event is not None and event.shown_by in {each.vm_id for each in reports}:
        return None
    return _newest_of(event, fresh)


def _newest_of(event: FleetEvent | None, fresh: Iterable[LatestReport]) -> str | None:
    """The reporter of an event that no heard, named VM reports: the one until now, or one with a
    newer report.
    """
    shown_by, shown_at = (None, 0.0) if event is None else (event.shown_by, event.shown_at)
    for each in sorted(fresh, key=lambda one: (not one.is_weak, one.time)):
        is_newer = each.time >= shown_at and not each.is_weak
        if shown_by is None or each.vm_id == shown_by or is_newer:
            shown_by, shown_at = each.vm_id, each.time
    return shown_by


def chosen(reports: Sequence[NamedReport], support: Sequence[Support] = ()) -> str | None:
    """The VM whose word counts; None if no heard VM says that the event names it.

    If they disagree, the one with the most heard reporters on its side wins: first about which VMs
    are named, and where they have their names. Of those that agree on this, a VM for which the
    event is pending comes before one for which it is over; then the words count that most use. If
    that decides nothing, the VM known longest wins. `support` is needed only where they disagree.
    """
    heard = [each for each in reports if each.is_heard]
    if not heard:
        return None
    by_names: Counter[Names] = Counter()
    for each in support:
        by_names[each.names] += each.count
    names = min(heard, key=lambda each: (-by_names[each.names], each.age)).names
    same = [each for each in heard if each.names == names]
    same = [each for each in same if not each.is_over] or same
    by_words: Counter[tuple[str, bool]] = Counter()
    for each in support:
        by_words[(each.content_hash, each.is_over)] += each.count
    best = min(same, key=lambda each: (-by_words[(each.content_hash, each.is_over)], each.age))
    return min(
        (each for each in same if each.content_hash == best.content_hash), key=lambda each: each.age
    ).vm_id


def as_shown(
    event: FleetEvent | None,
    shown: LatestReport,
    fresh: Sequence[LatestReport] = (),
    *,
    sites: tuple[str, ...],
) -> FleetEvent:
    """The event's row as one of its reporters shows it; `fresh` is what came in now. Of others than
    that reporter those say when it was seen, and what it cost, that it names as it is shown.

    Several reports of one reporter may have come in together, and late: what they measured counts,
    in whatever order and however many at once they came.
    """
    report = shown.report
    starts = report.event.not_before
    told = [
        shown,
        *(
            each
            for each in fresh
            if each.names_hash == shown.names_hash and (each.is_own or each.vm_id == shown.vm_id)
        ),
    ]
    first_at = min(each.first_at for each in told)
    after = FleetEvent(
        event_id=shown.event_id,
        scope=shown.scope,
        state=report.state,
        shown_by=shown.vm_id,
        shown_at=shown.time,
        first_at=first_at if event is None else min(event.first_at, first_at),
        event_type=report.event.event_type,
        not_before=None if starts is None else starts.timestamp(),
        is_news=report.is_news,
        sites=sites,
        words="\n".join([report.event.event_id, *report.event.resources]).casefold(),
        status=report.event.event_status,
        started_at=None if event is None else event.started_at,
        notice=None if event is None else event.notice,
        downtime=None if event is None else event.downtime,
    )
    for each in told:
        after = _measured(after, each)
    return after


def dated(
    event: FleetEvent | None, shown: LatestReport, named: Iterable[NamedReport]
) -> FleetEvent | None:
    """An event's row until now; where a VM shows it now that it names, and a reporter did until now
    that it does not name, without the time at which that one says to have seen it first.
    """
    if event is None or not shown.is_own:
        return event
    if any(each.vm_id == event.shown_by and each.names_hash == shown.names_hash for each in named):
        return event
    return replace(event, first_at=shown.first_at)


def _measured(event: FleetEvent, latest: LatestReport) -> FleetEvent:
    """The event's row with what a reporter measured, whichever reporter shows it."""
    report = latest.report
    started_at, notice, downtime = event.started_at, event.notice, event.downtime
    if report.state == "started":
        started_at = _best(min, started_at, latest.time)
    if latest.is_own:
        notice = _best(max, notice, report.notice_seconds)
        downtime = _best(max, downtime, report.downtime_seconds or report.pause_seconds)
    return replace(event, started_at=started_at, notice=notice, downtime=downtime)


def _best(
    choose: Callable[[Iterable[float]], float], one: float | None, other: float | None
) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None
