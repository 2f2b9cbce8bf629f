"""Past events, as they were announced, for a replay of the groups."""

from __future__ import annotations

from console.db.events.event_filters import WantedEvents
from console.db.snapshot import Snapshot
from console.db.turn_facts.event_facts import event_facts_of
from console.db.turn_facts.vm_facts import read_vm_facts
from console.db.vms.grouping import groups_now
from console.fleet.values.event import KnownEvent
from console.turns.facts import EventFacts, VmFacts
from console.turns.groups import Group, Grouping
from console.turns.replay import ReplayedEvent


def read_past(
    snapshot: Snapshot, grouping: Grouping, *, since: float, four_eyes: int = 0
) -> tuple[dict[str, Group], dict[str, VmFacts], list[ReplayedEvent]]:
    """Return today's groups, the VMs that events since a moment have named, and these events.
    `four_eyes`: the least number of named VMs for which a second person is needed; 0: never.
    """
    groups = groups_now(snapshot.connection, grouping)
    known = snapshot.event_lists.ended_events(WantedEvents(since=since))
    wanted = {named.vm_id for each in known for named in each.named.values()}
    past = [_past(each, four_eyes) for each in known if not each.event.is_news]
    return groups, read_vm_facts(snapshot, grouping, groups, {}, wanted), past


def _past(known: KnownEvent, four_eyes: int) -> ReplayedEvent:
    """Return an event as it was announced, as far as that is known: nothing of what was decided or
    happened since.
    """
    report = known.shown.report
    event = known.event
    notice = report.notice_seconds
    not_before = event.not_before
    if not_before is None and notice is not None:  # Azure: NotBefore is blank once it has started
        not_before = event.first_seen_at + notice
    starts = event.started_at or max(event.first_seen_at, not_before or event.first_seen_at)
    measured = report.downtime_seconds or report.pause_seconds
    lasted = max(0.0, event.shown_at - starts) if measured is None else measured
    now = event_facts_of(known, {}, four_eyes=four_eyes)
    return ReplayedEvent(
        facts=EventFacts(
            key=now.key,
            fingerprint=now.fingerprint,
            reported=now.reported,
            status="Scheduled",
            named=now.named,
            unknown_names=now.unknown_names,
            not_before=not_before,
            needs_two=now.needs_two,
        ),
        announced_at=event.first_seen_at,
        seconds=lasted,
    )
