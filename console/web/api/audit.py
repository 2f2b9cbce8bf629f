"""`/api/v1/audit`: the audit's rows as JSON lines, the oldest first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from console.audit.chain import as_json
from console.db.audit import rows_after
from console.db.snapshot import Snapshots
from console.web.api.models import DEFAULT_LIMIT, AuditQuery
from wire.strictjson import canonical_json


class AuditRoutes:
    """Answers requests for the audit."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def list_(self, _request: Request, query: AuditQuery) -> Response:
        """Answer with the rows after the number `after`; the number of the last row is the next
        `after`.
        """
        limit = query.limit or DEFAULT_LIMIT
        with self._snapshots.open() as snapshot:
            rows = rows_after(snapshot.connection, query.after or 0, limit)
        body = b"".join(canonical_json(as_json(row)) + b"\n" for row in rows)
        return Response(body, 200, {"Cache-Control": "no-store"}, "application/x-ndjson")
