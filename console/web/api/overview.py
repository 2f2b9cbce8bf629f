"""`/api/v1/overview`: the fleet in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from console.db.snapshot import Snapshot
from console.db.vms.vm_lists import WantedVms
from console.fleet import event_view, fleet_view
from console.fleet.decisions import only_hastens_deletion
from console.web.answers import answer
from console.web.app_state import AppState
from console.web.caller import person_of


class OverviewRoutes:
    """Answers requests about the whole fleet."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def show(self, request: Request) -> Response:
        """Answer with how many VMs are heard, how many decisions are due, and whether the sources
        are connected.
        """
        sources = self._state.source_items()
        with self._state.snapshots.open() as snapshot:
            return answer(overview(snapshot, sources, site=person_of(request).site))


def overview(
    snapshot: Snapshot, sources: Sequence[fleet_view.Source], *, site: str | None = None
) -> fleet_view.Overview:
    """Return the answer of `/api/v1/overview`. For a person of one site, only that site's VMs and
    events count.
    """
    wanted = WantedVms(equal={} if site is None else {"site": site})
    return fleet_view.overview(
        snapshot.vm_lists.count_by_contact(wanted),
        snapshot.vm_lists.count_by_condition(wanted),
        due=count_due(snapshot, site=site),
        now=snapshot.now,
        sources=sources,
    )


def count_due(snapshot: Snapshot, *, site: str | None = None) -> int:
    """Return how many events wait for a decision; evictions and deletions need none."""
    now = snapshot.now
    listening = snapshot.listening
    return sum(
        not only_hastens_deletion(each.event.event_type)
        and event_view.decision_on(each, now, listening).state == "due"
        for each in snapshot.events.askable_events()
        if site is None or site in each.event.sites
    )
