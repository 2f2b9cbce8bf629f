"""One thread that carries every open decision on, whichever console it was made at.

No console leads: each step is taken in a transaction that reads everything again, and a command
is left for a few seconds to the console that has claimed it. A token is only ever signed for a
command that was committed with its audit row.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from console.decisions.carrying import Around, Carried, carry, look, note_taken
from console.decisions.course import Wait
from console.decisions.sending import Outgoing, Sending
from console.errors import ConsoleError
from console.fleet.values import Command, Decision
from console.fleet.witnesses import Witness
from console.store import decisions as rows
from console.store.opening import Database
from console.store.transactions import read_from, write_to

_LOG: Final = logging.getLogger("console")
_ALL_SECONDS: Final = 5.0
"""How often every open decision is looked at, whatever comes in."""
_TROUBLE_SECONDS: Final = 0.5

Witnesses = Callable[[Iterable[str]], Mapping[str, Sequence[Witness]]]


class Driver:
    """`note` and `send` may be called from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        witnesses: Witnesses,
        connected: Callable[[], Mapping[str, float | None]],
        committed: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.console = uuid4().hex
        """Name of this run of this console, in claims."""
        self._database = database
        self._witnesses = witnesses
        self._connected = connected
        self._committed = committed
        self._clock = clock
        self._up_since = clock()
        self._changed = threading.Condition()
        self._outgoing: deque[Outgoing] = deque()
        self._taken: deque[tuple[Command, str | None, float]] = deque()
        self._touched: set[str] = set()
        self._due: dict[str, float] = {}
        """When an open decision is to be looked at next, by event id."""
        self._all_at = 0.0
        self._stopping = False
        self._sending: Sending | None = None
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)

    def start(self, sending: Sending) -> None:
        """Begin; decisions that were open before are carried on."""
        self._sending = sending
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End after what is under way; harmless if it has not started."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def note(self, event_ids: Iterable[str]) -> None:
        """Something came in about these events."""
        with self._changed:
            self._touched.update(event_ids)
            self._changed.notify()

    def send(self, outgoing: Outgoing) -> None:
        """Send a command that has just been committed, and claimed by this console."""
        with self._changed:
            self._outgoing.append(outgoing)
            self._changed.notify()

    def answered(self, command: Command, why: str | None) -> None:
        """The broker has taken a command, or has refused it, and why."""
        if why is not None:
            fields = {"action": "command_refused", "jti": command.jti, "source": command.channel}
            _LOG.error("the broker refused a command: %s", why, extra=fields)
        with self._changed:
            self._taken.append((command, why, self._clock()))
            self._changed.notify()

    def fetched(self, commands: Iterable[Command]) -> None:
        """A VM has been given these commands."""
        for each in commands:
            self.answered(each, None)

    def _run(self) -> None:
        while self._wait():
            try:
                self._work()
            except ConsoleError as error:
                _LOG.warning("%s", error, extra={"action": "decisions_wait"})
                with self._changed:
                    self._all_at = time.monotonic() + _TROUBLE_SECONDS
                    self._touched.clear()
                    self._changed.wait(_TROUBLE_SECONDS)
            except Exception:  # noqa: BLE001  # logged with its trace
                _LOG.exception("this is a bug in the console", extra={"action": "decisions_bug"})
                with self._changed:
                    self._changed.wait(_TROUBLE_SECONDS)

    def _wait(self) -> bool:
        """Until there is something to do; False at the end."""
        with self._changed:
            while not self._stopping:
                if self._outgoing or self._taken or self._touched:
                    return True
                rest = min(self._all_at - time.monotonic(), self._next_due() - self._clock())
                if rest <= 0:
                    return True
                self._changed.wait(rest)
        return False

    def _next_due(self) -> float:
        return min(self._due.values(), default=float("inf"))

    def _work(self) -> None:
        while self._outgoing:
            self._give(self._outgoing.popleft())
        self._note_taken()
        with self._changed:
            touched, self._touched = self._touched, set()
        now = self._clock()
        due = {event_id for event_id, at in self._due.items() if at <= now}
        whole = time.monotonic() >= self._all_at
        if whole:
            self._all_at = time.monotonic() + _ALL_SECONDS
        if whole or touched or due:
            self._look(None if whole else touched | due)

    def _look(self, event_ids: set[str] | None) -> None:
        """Take every step that is to be taken now, of some events or of all."""
        with read_from(self._database.reading) as connection:
            found = rows.read_all_open(connection)
        if event_ids is None:
            self._due.clear()
        for event_id in event_ids or ():
            self._due.pop(event_id, None)
        wanted = [each for each in found if event_ids is None or each.event_id in event_ids]
        if not wanted:
            return
        around = self._around({each.event_id for each in wanted})
        for each in wanted:
            try:
                self._step(each, around)
            except ConsoleError:
                raise
            except Exception:  # noqa: BLE001  # one bad decision must not hold up the others
                fields = {"action": "decisions_bug", "decision": each.id}
                _LOG.exception("this is a bug in the console", extra=fields)

    def _step(self, decision: Decision, around: Around) -> None:
        with read_from(self._database.reading) as connection:
            step = look(connection, decision, around)
        if isinstance(step, Wait):
            self._remember(decision.event_id, step.until)
        else:
            self._carry(decision, around)

    def _carry(self, decision: Decision, around: Around) -> None:
        with write_to(self._database) as (connection, number):
            carried = carry(connection, decision.id, around, number)
        self._tell(carried)
        over = any(each.state == "over" for each in carried.decisions)
        if not over:
            self._remember(decision.event_id, carried.wait_until)
            if carried.wait_until is None:  # what comes next is found once this is written
                self._touched.add(decision.event_id)
        if carried.outgoing is not None:
            self._give(carried.outgoing)

    def _give(self, outgoing: Outgoing) -> None:
        """Send; what is not on its way is found again once its claim has ended."""
        if self._sending is not None:
            self._sending.send(outgoing)

    def _note_taken(self) -> None:
        """Write down, in one transaction, which commands are on their way."""
        with self._changed:
            taken = list(self._taken)
        if not taken:
            return
        with write_to(self._database) as (connection, number):
            carried = note_taken(connection, taken, number)
        with self._changed:
            for _ in taken:
                self._taken.popleft()
        self._tell(carried)

    def _tell(self, carried: Carried) -> None:
        if carried.decisions or carried.commands:
            self._committed()

    def _around(self, event_ids: set[str]) -> Around:
        return Around(
            now=self._clock(),
            up_since=self._up_since,
            console=self.console,
            connected=self._connected(),
            witnesses=self._witnesses(event_ids),
        )

    def _remember(self, event_id: str, until: float | None) -> None:
        if until is not None:
            self._due[event_id] = until
