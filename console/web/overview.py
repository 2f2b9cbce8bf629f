"""`/api/v1/overview`, and the health of the console."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from console.db.history import read_quarantine
from console.db.snapshot import Snapshot
from console.db.vms import WantedVms
from console.fleet import view
from console.fleet.decisions import takes_away
from console.web import models
from console.web.answers import answer
from console.web.caller import person_of
from console.web.state import AppState


class OverviewRoutes:
    """Answers requests about the whole fleet and about the console."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def shown(self, request: Request) -> Response:
        """Answer with how many VMs are heard, how many decisions are due, and whether the sources
        are connected.
        """
        sources = self._state.source_items()
        with self._state.snapshots.open() as snapshot:
            return answer(overview(snapshot, sources, site=person_of(request).site))

    def quarantine(self, _request: Request) -> Response:
        """Answer with the messages that are not records of ours, by source and reason, the newest
        first.
        """
        with self._state.snapshots.open() as snapshot:
            found = read_quarantine(snapshot.connection)
        items = [
            models.Quarantined(
                source=each.source,
                reason=each.reason,
                count=each.count,
                first_at=each.first_at,
                last_at=each.last_at,
                message=each.message,
            )
            for each in found
        ]
        return answer(models.QuarantinedList(items=items))

    async def healthy(self, _request: Request) -> Response:
        """Answer 200 as long as the process answers: a restart helps only if it does not."""
        return PlainTextResponse("ok\n")

    async def ready(self, _request: Request) -> Response:
        """Answer 503 without the database. A source that is not connected is named, and the page
        still works. Strangers may ask, so reasons with addresses are only in the log and on the
        page.
        """
        if self._state.writer.progress.trouble is not None:
            return PlainTextResponse("the database does not answer; the log says why\n", 503)
        if not self._state.is_ready():
            return PlainTextResponse("the console is reading its database\n", 503)
        away = [
            f"source {source.name}: not connected; the log says why"
            for source in self._state.sources.values()
            if not source.connected
        ]
        return PlainTextResponse("\n".join(["ok", *away, ""]))


def overview(
    snapshot: Snapshot, sources: Sequence[view.Source], *, site: str | None = None
) -> view.Overview:
    """Return the answer of `/api/v1/overview`; with a site, only its VMs and events count."""
    wanted = WantedVms(equal={} if site is None else {"site": site})
    return view.overview(
        snapshot.vms.counted(wanted),
        snapshot.vms.conditions(wanted),
        due=count_due(snapshot, site=site),
        now=snapshot.now,
        sources=sources,
    )


def count_due(snapshot: Snapshot, *, site: str | None = None) -> int:
    """Return how many events wait for a decision; evictions and deletions need none."""
    now = snapshot.now
    listening = snapshot.listening
    return sum(
        not takes_away(each.event.event_type)
        and view.decision_on(each, now, listening).state == "due"
        for each in snapshot.events.askable()
        if site is None or site in each.event.sites
    )
