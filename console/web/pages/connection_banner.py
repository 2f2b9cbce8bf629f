"""The red bar of every page: the reasons why the page may be wrong, such as a source that is not
connected, or why nothing can be decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.db.connection.errors import DatabaseFailedError
from console.db.connection.transactions import read_from
from console.db.decisions.latest_groups import are_latest
from console.web.app_state import AppState
from console.web.pages.formatting import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A reason why the page may be wrong; the texts may come from outside."""

    title: str
    detail: str | None = None
    remedy: str | None = None


def troubles(state: AppState) -> list[Trouble]:
    """Return everything that the console is not connected to, and why it decides nothing, if so;
    empty if all works.
    """
    found = []
    if state.writer.progress.trouble is not None:
        found.append(
            Trouble(
                title="The database does not work",
                detail=state.writer.progress.trouble,
                remedy="No record is lost: the sources wait until the database works again.",
            )
        )
    elif not state.is_ready():
        found.append(Trouble(title="Starting", detail="The fleet is read from the database."))
    sources = list(state.sources.values())
    if not sources:
        found.append(
            Trouble(
                title="The console has no source",
                remedy="Set SEB_CONSOLE_SOURCE__WEBHOOK__KIND=webhook, or a source of the kind "
                "mqtt or eventhub, and start the console again.",
            )
        )
    away = [source for source in sources if not source.is_connected]
    for source in away:
        who = (
            f"Source {source.name}"
            if source.name == source.kind
            else (f"Source {source.name} ({source.kind})")
        )
        found.append(
            Trouble(
                title=f"{who} is not connected: {_depending(state, source.name)}",
                detail=source.trouble or "It is connecting.",
                remedy="What this page shows of its VMs may be old.",
            )
        )
    if not _has_latest_groups(state):
        found.append(
            Trouble(
                title="Another console was started after this one with other groups",
                detail="This one gives no turns, and nothing is due here.",
                remedy="Decide at the other console, or start this one again with the same "
                "SEB_CONSOLE_GROUPS.",
            )
        )
    return found


def _has_latest_groups(state: AppState) -> bool:
    """Check whether the console that was started last has the same groups, as far as is known."""
    try:
        with read_from(state.snapshots.database.reading) as connection:
            return are_latest(connection, state.grouping.hash)
    except DatabaseFailedError:
        return True


def _depending(state: AppState, source: str) -> str:
    """Return how many VMs were last heard over a source, as a clause."""
    try:
        with state.snapshots.open() as snapshot:
            count = snapshot.vm_lists.count_vms(heard_source=source)
    except DatabaseFailedError:
        return "how many VMs depend on it is not known"
    return f"{plural(count, 'VM')} {'depends' if count == 1 else 'depend'} on it"
