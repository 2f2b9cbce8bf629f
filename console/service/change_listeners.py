"""What a run does when a transaction was committed, by this console or by another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from console.approvals.service import Decisions
from console.db.access.enrolment_rows import generations_since
from console.db.connection.opening import Database
from console.db.connection.transactions import read_from
from console.db.decisions.decision_rows import commands_to_fetch
from console.fleet.candidates import PULL
from console.ingest.vm_secrets import EVERY_VM, Enrolments
from console.service.change_feed import ChangeListener
from console.web.api.stream import ChangeMessages, StreamHub
from console.web.bridges.held_polls import HeldPolls

OnLoop = Callable[[Callable[[Any], None], Any], None]
"""Calls a function with a value on the event loop's thread, without waiting."""


class ChangeListeners:
    """The listeners of the change feed, which calls them on its thread."""

    def __init__(
        self,
        database: Database,
        *,
        enrolments: Enrolments,
        held_polls: HeldPolls,
        decisions: Decisions,
        stream: StreamHub,
        messages: ChangeMessages,
        on_loop: OnLoop,
    ) -> None:
        self._database = database
        self._enrolments = enrolments
        self._held_polls = held_polls
        self._decisions = decisions
        self._stream = stream
        self._messages = messages
        self._on_loop = on_loop

    def all(self) -> Sequence[ChangeListener]:
        """Return the listeners in the order in which they are called."""
        return (
            self.read_enrolments,
            self.offer_commands,
            self.advance_decisions,
            self.push_changes,
        )

    def read_enrolments(self, since: int | None, change_number: int) -> None:
        """Read which secrets have become invalid, because their VMs were enrolled again or
        revoked.
        """
        if since == change_number:
            return
        with read_from(self._database.reading) as connection:
            generations = generations_since(connection, since or 0)
        revoked = self._enrolments.put(generations)
        if revoked:
            self._on_loop(self._wake_polls, revoked)

    def offer_commands(self, since: int | None, change_number: int) -> None:
        """Offer the commands that VMs are to fetch, from any console."""
        if since == change_number:
            return
        with read_from(self._database.reading) as connection:
            for command in commands_to_fetch(connection, PULL, since or 0):
                self._held_polls.offer(command.vm_id, command.jti)

    def advance_decisions(self, since: int | None, change_number: int) -> None:
        """Check open decisions: they may have a next step."""
        if since != change_number:
            self._decisions.check_again(since)

    def push_changes(self, _since: int | None, _number: int) -> None:
        """Send the open pages what has changed, including changes that only the passing of time has
        caused.
        """
        if not self._stream.has_listeners:
            self._messages.skip()
            return
        self._on_loop(self._stream.send, self._messages.messages())

    def _wake_polls(self, revoked: set[str]) -> None:
        """Wake waiting polls, so that each checks whether its token is still valid."""
        if EVERY_VM in revoked:
            self._held_polls.wake_all()
        for vm_id in revoked:
            self._held_polls.wake(vm_id)
