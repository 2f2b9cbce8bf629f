"""`/api/v1/quarantine`: messages that are not records of ours."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from console.db.snapshot import Snapshots
from console.db.sources.quarantine import read_quarantine
from console.fleet.model import Count, Model, Moment
from console.web.answers import answer


class QuarantinedItem(Model):
    """Messages of one source that are not records of ours, for one reason."""

    source: str
    reason: str
    count: Count
    first_at: Moment | None
    last_at: Moment | None
    message: str


class QuarantinedList(Model):
    """All quarantined messages, the newest first."""

    items: list[QuarantinedItem]


class QuarantineRoutes:
    """Answers requests for the quarantine."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def list_(self, _request: Request) -> Response:
        """Answer with the last message of each source and reason, the newest first."""
        with self._snapshots.open() as snapshot:
            found = read_quarantine(snapshot.connection)
        items = [
            QuarantinedItem(
                source=each.source,
                reason=each.reason,
                count=each.count,
                first_at=each.first_at,
                last_at=each.last_at,
                message=each.message,
            )
            for each in found
        ]
        return answer(QuarantinedList(items=items))
