"""Chooses the reporter that an event is shown by: a VM that it names and that is heard
comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from console.fleet.values.event import FleetEvent
from console.fleet.values.report import LatestReport


class Names(NamedTuple):
    """Equal for two reporters that name the same VMs: a hash of the names, and their place."""

    names_hash: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReport:
    """The report of an event by a VM that it names."""

    vm_id: str
    content_hash: str
    names_hash: str
    """Equal for two reporters that name the same VMs."""
    is_over: bool
    time: float
    is_heard: bool
    name_since: float
    """When the VM began to bear its name."""
    site: str
    name_key: str
    """The VM's name as it is compared."""
    place: str
    """The place in which the names that it reports are unique."""
    resources: frozenset[str] = frozenset()
    """The names that it lists, as they are compared. Known of a report by which a contested event
    is over.
    """

    @property
    def names(self) -> Names:
        """The VMs that the report names."""
        return Names(self.names_hash, self.place)

    @property
    def age(self) -> tuple[float, str]:
        """A sort value: lower for a VM that has been known longer."""
        return self.name_since, self.vm_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCount:
    """How many heard reporters, named or not, report the same of an event in one place."""

    names_hash: str
    place: str
    content_hash: str
    is_over: bool
    count: int

    @property
    def names(self) -> Names:
        """The VMs that these reporters name."""
        return Names(self.names_hash, self.place)


def is_contested(reports: Iterable[NamedReport]) -> bool:
    """Check whether heard VMs that the event names disagree about which VMs it names, or about what
    is pending or over.
    """
    heard = [each for each in reports if each.is_heard]
    contents = {(each.content_hash, each.is_over) for each in heard}
    open_ones = {each.content_hash for each in heard if not each.is_over}
    return len({each.names for each in heard}) > 1 or len(open_ones or contents) > 1


def choose_reporter(
    event: FleetEvent | None,
    reports: Sequence[NamedReport],
    support: Sequence[ReportCount],
    incoming: Sequence[LatestReport],
) -> str | None:
    """Return the VM whose report shows an event; None if the newest of all reports does. `event` is
    the row until now; `incoming` are the reports that came in now.
    """
    vm_id = best_named_reporter(reports, support)
    if vm_id is not None or (event is None and not incoming):
        return vm_id
    if event is not None and event.shown_by in {each.vm_id for each in reports}:
        return None
    return _newest_of(event, incoming)


def _newest_of(event: FleetEvent | None, incoming: Iterable[LatestReport]) -> str | None:
    """Return the reporter for an event that no heard VM it names reports: the current one, or one
    with a newer report.
    """
    shown_by, shown_at = (None, 0.0) if event is None else (event.shown_by, event.shown_at)
    for each in sorted(incoming, key=lambda one: (not one.is_weak, one.time)):
        is_newer = each.time >= shown_at and not each.is_weak
        if shown_by is None or each.vm_id == shown_by or is_newer:
            shown_by = each.vm_id
            shown_at = each.time
    return shown_by


def best_named_reporter(
    reports: Sequence[NamedReport], support: Sequence[ReportCount] = ()
) -> str | None:
    """Return the VM whose report counts, or None if no heard VM reports that the event names it.

    If they disagree, the report with the most heard reporters wins, first about which VMs are named
    and in which place. Among those that agree on this, a VM for which the event is pending comes
    before one for which it is over. Then the wording with the most reporters wins, and at last the
    VM that has been known longest. `support` is needed only if they disagree.

    The event may return after its end, and name fewer VMs then. So a report that the event is over
    does not count once a VM that it names has reported the event later as pending. Example: an
    event names web-1, web-2 and web-3. web-1 reports its end, and a minute later web-2 reports it
    as pending: it is pending. But if web-1 and web-3 have both reported the end, it is over: one VM
    alone brings no event back.
    """
    heard = _not_outdated([each for each in reports if each.is_heard])
    if not heard:
        return None
    by_names: Counter[Names] = Counter()
    for each in support:
        by_names[each.names] += each.count
    names = min(heard, key=lambda each: (-by_names[each.names], each.age)).names
    same = [each for each in heard if each.names == names]
    same = [each for each in same if not each.is_over] or same
    by_content: Counter[tuple[str, bool]] = Counter()
    for each in support:
        by_content[(each.content_hash, each.is_over)] += each.count
    best = min(same, key=lambda each: (-by_content[(each.content_hash, each.is_over)], each.age))
    return min(
        (each for each in same if each.content_hash == best.content_hash), key=lambda each: each.age
    ).vm_id


def _not_outdated(reports: Sequence[NamedReport]) -> list[NamedReport]:
    """Return the reports without the ends after which VMs that they name reported the event as
    pending: at least as many of them, so that one liar brings nothing back.
    """
    pending = [each for each in reports if not each.is_over]
    outdated = [
        each
        for each in reports
        if each.is_over
        and any(
            one.name_key in each.resources and one.place == each.place and one.time > each.time
            for one in pending
        )
    ]
    if len(outdated) > len(pending):
        return list(reports)
    return [each for each in reports if each not in outdated]


def as_shown(
    event: FleetEvent | None,
    shown: LatestReport,
    incoming: Sequence[LatestReport] = (),
    *,
    sites: tuple[str, ...],
) -> FleetEvent:
    """Return the event's row as its reporter shows it; `incoming` are the reports that came in now.

    Times and measurements of other reporters count if the event names them and they name the same
    VMs. Several reports of one reporter may come in together, and late: all their measurements
    count, in any order.
    """
    report = shown.report
    starts = report.event.not_before
    counted = [
        shown,
        *(
            each
            for each in incoming
            if each.names_hash == shown.names_hash and (each.is_own or each.vm_id == shown.vm_id)
        ),
    ]
    first_seen_at = min(each.first_seen_at for each in counted)
    after = FleetEvent(
        event_id=shown.event_id,
        scope=shown.scope,
        state=report.state,
        shown_by=shown.vm_id,
        shown_at=shown.time,
        first_seen_at=first_seen_at if event is None else min(event.first_seen_at, first_seen_at),
        event_type=report.event.event_type,
        not_before=None if starts is None else starts.timestamp(),
        is_news=report.is_news,
        sites=sites,
        search_text="\n".join([report.event.event_id, *report.event.resources]).casefold(),
        status=report.event.event_status,
        started_at=None if event is None else event.started_at,
        notice=None if event is None else event.notice,
        downtime=None if event is None else event.downtime,
    )
    for each in counted:
        after = _with_measurements(after, each)
    return after


def with_first_seen_of(
    event: FleetEvent | None, shown: LatestReport, named: Iterable[NamedReport]
) -> FleetEvent | None:
    """Return the event's row as it was until now. If its former reporter is not named by it and the
    new one is, the row loses the time at which the former one first saw the event.
    """
    if event is None or not shown.is_own:
        return event
    if any(each.vm_id == event.shown_by and each.names_hash == shown.names_hash for each in named):
        return event
    return replace(event, first_seen_at=shown.first_seen_at)


def _with_measurements(event: FleetEvent, latest: LatestReport) -> FleetEvent:
    """Return the event's row with what a reporter measured, whichever reporter shows it."""
    report = latest.report
    started_at = event.started_at
    notice = event.notice
    downtime = event.downtime
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
