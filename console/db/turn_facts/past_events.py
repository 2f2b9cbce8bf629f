"""Past events, as they were announced, for a replay of the groups."""

from __future__ import annotations

from dataclasses import replace

from console.db.events.event_filters import WantedEvents
from console.db.snapshot import Snapshot
from console.db.turn_facts.event_facts import event_facts_of
from console.db.turn_facts.vm_facts import read_vm_facts
from console.db.vms.grouping import groups_now
from console.fleet.values.event import KnownEvent
from console.turns.facts import VmFacts
from console.turns.groups import Group, Grouping
from console.turns.replay import ReplayedEvent


def read_past(
    snapshot: Snapshot, grouping: Grouping, *, since: float
) -> tuple[dict[str, Group], dict[str, VmFacts], list[ReplayedEvent]]:
    """Return today's groups, the VMs that events since a moment have named, and these events."""
    groups = groups_now(snapshot.connection, grouping)
    known = snapshot.event_lists.ended_events(WantedEvents(since=since))
    wanted = {named.vm_id for each in known for named in each.named.values()}
    past = [_past(each) for each in known if not each.event.is_news]
    return groups, read_vm_facts(snapshot, grouping, {}, wanted), past


def _past(known: KnownEvent) -> ReplayedEvent:
    """Return an event as it was announced, as far as that is known."""
    facts = known.shown.report
    event = known.event
    notice = facts.notice_seconds
    not_before = event.not_before
    if not_before is None and notice is not None:  # Azure: NotBefore is blank once it has started
        not_before = event.first_seen_at + notice
    starts = max(event.first_seen_at, not_before or event.first_seen_at)
    measured = facts.downtime_seconds or facts.pause_seconds
    lasted = max(0.0, event.shown_at - starts) if measured is None else measured
    announced = event_facts_of(known, {})
    return ReplayedEvent(
        facts=replace(
            announced,
            status="Scheduled",
            not_before=not_before,
            is_disputed=False,
            is_left=False,
            reported_by=None,
        ),
        announced_at=event.first_seen_at,
        seconds=lasted,
    )
