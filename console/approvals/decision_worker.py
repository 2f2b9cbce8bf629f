"""One thread that continues every open decision, whichever console made it.

No console leads: each step is written in a transaction that reads everything again, and a command
is left for a few seconds to the console that has claimed it. A token is only ever signed for a
command that was committed with its audit row.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import uuid4

from console.approvals.command_sender import OutgoingCommand, VmCommandSender
from console.approvals.decision_situation import WaitForChange
from console.approvals.step_transaction import (
    StepContext,
    mark_sent,
    next_steps,
    write_decision_step,
)
from console.db.connection.transactions import write_to
from console.db.decisions import decision_rows
from console.db.events.changed_events import changed_event_ids
from console.db.snapshot import Snapshots
from console.db.turn_facts.turn_facts import TurnSettings
from console.fleet.values.decision import Decision, VmCommand
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
_CHECK_ALL_SECONDS: Final = 5.0
"""The time between two checks of every open decision, even without a change."""
_RETRY_SECONDS: Final = 0.5


class DecisionWorker:
    """Takes the steps of open decisions. All methods may be called from any thread."""

    def __init__(
        self,
        snapshots: Snapshots,
        sender: VmCommandSender,
        *,
        connected: Callable[[], Mapping[str, float | None]],
        on_commit: Callable[[], None],
        turns: TurnSettings,
    ) -> None:
        self.run_id = uuid4().hex
        """The id of this run of this console, in claims."""
        self._snapshots = snapshots
        self._database = snapshots.database
        self._connected = connected
        self._turns = turns
        self._on_commit = on_commit
        self._clock = snapshots.clock
        self._up_since = snapshots.clock()
        self._changed = threading.Condition()
        self._outgoing: deque[OutgoingCommand] = deque()
        self._sent: deque[tuple[VmCommand, str | None, float]] = deque()
        self._since: int | None = None
        """The number of the transaction after which changed events have to be checked; None if
        there are none.
        """
        self._due: dict[str, float] = {}
        """When an open decision is to be checked next, by event id."""
        self._check_all_at = 0.0
        self._stopping = False
        self._sender = sender
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)

    def start(self) -> None:
        """Start the thread; it also continues decisions of earlier runs."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop after the current step; harmless if it has not started."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def check_again(self, since: int | None) -> None:
        """Note that the decisions on some events may have a next step: the events with rows that
        were written after the transaction `since`. With None it is all events.
        """
        with self._changed:
            if since is None:
                self._check_all_at = 0.0
            elif self._since is None or since < self._since:
                self._since = since
            self._changed.notify()

    def send(self, outgoing: OutgoingCommand) -> None:
        """Send a command that was committed just now, and claimed by this console."""
        with self._changed:
            self._outgoing.append(outgoing)
            self._changed.notify()

    def note_answer(self, command: VmCommand, reason: str | None) -> None:
        """Note that the broker has accepted a command, or has refused it for that reason."""
        if reason is not None:
            fields = {"action": "command_refused", "jti": command.jti, "source": command.channel}
            _LOG.error("the broker refused a command: %s", reason, extra=fields)
        with self._changed:
            self._sent.append((command, reason, self._clock()))
            self._changed.notify()

    def note_fetched(self, commands: Iterable[VmCommand]) -> None:
        """Note that a VM has been given these commands."""
        for each in commands:
            self.note_answer(each, None)

    def _run(self) -> None:
        while self._wait():
            try:
                self._work()
            except SebError as error:
                _LOG.warning("%s", error, extra={"action": "decisions_wait"})
                with self._changed:
                    self._check_all_at = time.monotonic() + _RETRY_SECONDS
                    self._changed.wait(_RETRY_SECONDS)
            except Exception:  # noqa: BLE001  # logged with its trace
                _LOG.exception("this is a bug in the console", extra={"action": "decisions_bug"})
                with self._changed:
                    self._changed.wait(_RETRY_SECONDS)

    def _wait(self) -> bool:
        """Wait until there is something to do; return False at the end."""
        with self._changed:
            while not self._stopping:
                if self._outgoing or self._sent or self._since is not None:
                    return True
                rest = min(self._check_all_at - time.monotonic(), self._next_due() - self._clock())
                if rest <= 0:
                    return True
                self._changed.wait(rest)
        return False

    def _next_due(self) -> float:
        return min(self._due.values(), default=float("inf"))

    def _work(self) -> None:
        while self._outgoing:
            self._send_now(self._outgoing.popleft())
        self._write_sent()
        with self._changed:
            since = self._since
            self._since = None
        every = time.monotonic() >= self._check_all_at
        if every:
            self._check_all_at = time.monotonic() + _CHECK_ALL_SECONDS
        try:
            self._advance(since, every=every)
        except SebError:
            self.check_again(since)
            raise

    def _advance(self, since: int | None, *, every: bool) -> None:
        """Take every step that is due. With `every`, check every open decision; otherwise at
        those that are due by now, and at those on events that have changed after the transaction
        `since`.
        """
        context = self._context()
        with self._snapshots.open() as snapshot:
            found = decision_rows.read_all_open(snapshot.connection)
            if not every:
                touched = [event_id for event_id, at in self._due.items() if at <= snapshot.now]
                if since is not None and found:
                    touched += changed_event_ids(snapshot.connection, since)
                found = [each for each in found if each.event_id in touched]
            steps = next_steps(snapshot, found, context)
        if every:
            self._due.clear()
        for each, step in steps:
            self._due.pop(each.event_id, None)
            if isinstance(step, WaitForChange):
                self._schedule(each.event_id, step.until)
                continue
            try:
                self._advance_one(each, context)
            except SebError:
                raise
            except Exception:  # noqa: BLE001  # one bad decision must not hold up the others
                fields = {"action": "decisions_bug", "decision": each.id}
                _LOG.exception("this is a bug in the console", extra=fields)

    def _advance_one(self, decision: Decision, context: StepContext) -> None:
        with write_to(self._database) as (connection, change_number):
            snapshot = self._snapshots.of(connection)
            written = write_decision_step(snapshot, decision.id, context, change_number)
        if not written.is_written:
            if not written.is_over:
                self._schedule(decision.event_id, written.wait_until)
            return
        self._on_commit()
        if not written.is_over:  # what comes next is found once this is written
            self._schedule(decision.event_id, self._clock())
        if written.outgoing is not None:
            self._send_now(written.outgoing)

    def _send_now(self, outgoing: OutgoingCommand) -> None:
        """Send a command. If it cannot be sent now, it is found again once its claim has ended."""
        self._sender.send(outgoing, self.note_answer)

    def _write_sent(self) -> None:
        """Write, in one transaction, which commands are on their way."""
        with self._changed:
            sent = list(self._sent)
        if not sent:
            return
        with write_to(self._database) as (connection, change_number):
            mark_sent(self._snapshots.of(connection), sent, change_number)
        with self._changed:
            for _ in sent:
                self._sent.popleft()
        self._on_commit()

    def _context(self) -> StepContext:
        return StepContext(
            up_since=self._up_since,
            run_id=self.run_id,
            connected=self._connected(),
            turns=self._turns,
        )

    def _schedule(self, event_id: str, until: float | None) -> None:
        if until is not None:
            self._due[event_id] = until
