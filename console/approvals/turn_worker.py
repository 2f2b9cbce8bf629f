"""One thread that gives turns, continues them and ends them, whichever console began them.

No console leads: each step is one transaction, and follows from the rows as that transaction finds
them. What is to be sent is sent after its commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from sqlalchemy import Connection

from console.approvals.command_sender import OutgoingCommand
from console.approvals.decision_requests import DecisionPolicy
from console.approvals.request_transaction import RequestTransaction
from console.approvals.turn_steps import has_work, write_turn_steps
from console.audit.limiter import AuditLimiter
from console.db.connection.transactions import read_from, write_to
from console.db.decisions import turn_rows
from console.db.decisions.latest_groups import are_latest
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.turns.facts import TurnFacts
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
_CHECK_SECONDS: Final = 1.0
"""The longest time between two checks for work: a rest ends with time alone."""
_GATHER_SECONDS: Final = 0.05
"""The shortest pause after a check, so that a busy fleet is not read for each record."""
_BURST_SECONDS: Final = 5.0
"""How long checks may follow each other so soon although each takes long, as in a large fleet; then
each is followed by a pause of half its time.
"""


class TurnWorker:
    """Runs the steps of turns in a thread. `check_again` may be called from any thread."""

    def __init__(
        self,
        snapshots: Snapshots,
        settings: TurnSettings,
        facts: KeptTurnFacts,
        *,
        run_id: str,
        send: Callable[[OutgoingCommand], None],
        connected: Callable[[], Mapping[str, float | None]],
        on_commit: Callable[[], None],
    ) -> None:
        """`run_id` is the id of this run; `connected` returns, for each source of this console,
        since when it is connected.
        """
        self._snapshots = snapshots
        self._settings = settings
        self._facts = facts
        self._run_id = run_id
        self._send = send
        self._connected = connected
        self._on_commit = on_commit
        self._checked: TurnFacts | None = None
        """The facts of the last check for work."""
        self._is_outdated = False
        """Whether another console was started after this one with other groups."""
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)

    def start(self) -> None:
        """Start the thread. Without groups it ends the open turns of an earlier run."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop after the current step; harmless if it has not started."""
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def check_again(self) -> None:
        """Check soon whether there is work: rows were written."""
        self._wanted.set()

    def _run(self) -> None:
        idle_at = time.monotonic()
        while not self._stopping.is_set():
            begun = time.monotonic()
            rest = _GATHER_SECONDS
            try:
                if self._work():
                    continue  # its own step may have a next one, which follows at once
                took = time.monotonic() - begun
                if took < _GATHER_SECONDS:
                    idle_at = begun
                elif begun - idle_at > _BURST_SECONDS:
                    rest = max(rest, took / 2)  # others need the database too
            except SebError as error:
                _LOG.warning("%s", error, extra={"action": "turns_wait"})
            except Exception:  # noqa: BLE001  # logged with its trace
                _LOG.exception("this is a bug in the console", extra={"action": "turns_bug"})
            self._stopping.wait(rest)
            self._wanted.wait(_CHECK_SECONDS)
            self._wanted.clear()

    def _work(self) -> bool:
        """Write the next step, if there is one; return whether it has changed anything."""
        connected = {name for name, since in self._connected().items() if since is not None}
        if not self._has_work(connected):
            return False
        with write_to(self._snapshots.database) as (connection, change_number):
            if not are_latest(connection, self._settings.grouping.hash):
                return False
            snapshot = self._snapshots.of(connection, is_exact=True)
            requests = RequestTransaction(
                snapshot,
                change_number,
                run_id=self._run_id,
                policy=DecisionPolicy(can_sign=True, four_eyes=self._settings.four_eyes),
                audit_limiter=AuditLimiter(),
            )
            facts = self._facts.facts_for_step(snapshot)
            written = write_turn_steps(snapshot, change_number, facts, requests, connected)
        for command in written.outgoing:
            self._send(command)
        if written.has_changed:
            self._on_commit()
        return written.has_changed

    def _has_latest_groups(self, connection: Connection) -> bool:
        """Check whether this console may give turns; log it when that changes."""
        has_latest = are_latest(connection, self._settings.grouping.hash)
        if not has_latest and not self._is_outdated:
            _LOG.error(
                "another console was started after this one with other groups: this one gives no "
                "turns; start it again with the same SEB_CONSOLE_GROUPS",
                extra={"action": "other_groups"},
            )
        self._is_outdated = not has_latest
        return has_latest

    def _has_work(self, connected: Collection[str]) -> bool:
        """Check, without a lock on the database, whether a step would write anything."""
        with read_from(self._snapshots.database.reading) as connection:
            has_groups = bool(self._settings.grouping.settings)
            is_open = turn_rows.is_anything_open if has_groups else turn_rows.is_any_turn_open
            if not is_open(connection) or not self._has_latest_groups(connection):
                return False
            snapshot = self._snapshots.of(connection)
            facts = self._facts.facts_for(snapshot)
            if facts is self._checked:
                return False
            self._checked = facts
            return has_work(snapshot, facts, connected)
