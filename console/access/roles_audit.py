"""Writes the roles of the settings to the audit: a row for each start at which they have
changed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from console.audit import audit_log
from console.audit.chain import AuditValue
from console.config.settings import ROLES, ConsoleSettings
from console.db.audit import WantedRows, found_rows
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to

_ACTION: Final = "roles_changed"
_ACTOR: Final = "settings"


def audit_roles(database: Database, settings: ConsoleSettings, *, now: float) -> None:
    """Append a row if the roles, or the way in which names are checked, differ from those of the
    last row. `now` in seconds since 1970. Raises `DatabaseFailedError`.
    """
    details = _details(settings)
    with write_to(database) as (connection, _):
        rows = found_rows(connection, WantedRows(equal={"action": _ACTION}), limit=1, skip=0)
        before: dict[str, Any] = json.loads(rows[0].body) if rows else {"login": "none"}
        if any(before.get(name) != value for name, value in details.items()):
            audit_log.append(connection, at=now, actor=_ACTOR, action=_ACTION, **details)


def _details(settings: ConsoleSettings) -> dict[str, Any]:
    login = settings.login
    roles: dict[str, AuditValue] = {
        role: sorted(settings.roles[role]) if settings.roles.get(role) else None for role in ROLES
    }
    return roles | {
        "login": login.mode,
        "issuer": login.issuer if login.mode == "oidc" else None,
        "proxies": sorted(login.proxies) if login.mode == "proxy" else None,
    }
