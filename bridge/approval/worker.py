"""The thread of approvals. Each round serves people, polls, commands, and one request to IMDS; it
never waits for a sink. It also keeps the deadlines of preparations, whether or not polls succeed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final

from bridge.approval.approvals import Approvals
from bridge.store.approvals import Act, Approval
from bridge.store.database import StoreError
from sinks.base import CommandMessage
from wire.command import MAX_TOKEN_BYTES

_LOG: Final = logging.getLogger(__name__)

WAITING: Final = 64
"""How many commands may wait."""
FIRST_POLL_SECONDS: Final = 5.0
"""How long commands wait for this run's first poll, which may find the event that they name."""
STORE_SECONDS: Final = 1.0
"""How long a command that could not be stored waits, unless the next poll comes first."""
VERIFY_SECONDS: Final = 1.0
"""How long the commands of one round may take; the others wait for the next round. Each may wait
for a trust file on a slow mount.
"""
DEADLINE_SECONDS: Final = 1.0
"""The shortest time between two checks of the deadlines, if there is no poll in between."""
CLOCK_SECONDS: Final = 5.0
"""The longest wait for a time of day: the clock may be set, or the machine suspended."""

UNCONFIRMED: Final = "the VM identity is not confirmed by IMDS yet; try again"

Job = Callable[[], object]


class ApprovalWorker:
    """Carries out approvals in rounds: people, then the last poll, then the commands that wait,
    then at most one request to IMDS. So a request that hangs delays each of them once, and no flood
    of commands delays a request for long. All methods may be called from any thread.
    """

    def __init__(
        self, approvals: Approvals, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._approvals = approvals
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._people: deque[Job] = deque()
        self._commands: deque[CommandMessage] = deque()
        self._confirmed = False
        self._has_new_poll = False
        self._check_preparations = False
        """Whether to check which events the VM must prepare for, as after each poll."""
        self._prepares_from = 0.0
        """Monotonic time before which a deadline that has passed does not start the check of
        preparations.
        """
        self._more = False
        """Whether the last step found something to do: then there may be more."""
        self._stopping = False
        self._held_until = 0.0
        self._thread = threading.Thread(target=self._run, name="approvals", daemon=True)

    def start(self) -> None:
        """Start the thread. It prepares the VM for what is due; approvals wait for `confirm`."""
        with self._changed:
            if not self._has_new_poll:
                self._held_until = self._monotonic() + FIRST_POLL_SECONDS
                self._prepares_from = self._held_until
        self._thread.start()

    def confirm(self) -> None:
        """Note that IMDS has confirmed the VM identity. Until then nothing is verified or
        approved.
        """
        with self._changed:
            self._confirmed = True
            self._changed.notify()

    @property
    def is_confirmed(self) -> bool:
        """Whether the VM identity is confirmed, so that approvals are allowed."""
        return self._confirmed

    @property
    def verifies(self) -> bool:
        """Whether a command that comes in can be verified now."""
        return self._confirmed and self._approvals.verifies

    def stop(self, seconds: float) -> None:
        """Stop within so many seconds. Commands that still wait are not settled, so their channel
        keeps them.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def command(self, message: CommandMessage) -> bool:
        """Take a command from a channel; return False if too many are waiting."""
        # A message that is too large is refused anyway, so it is not kept whole until then.
        message = replace(message, token=message.token[: MAX_TOKEN_BYTES + 1])
        with self._changed:
            if len(self._commands) >= WAITING or self._stopping:
                return False
            self._commands.append(message)
            self._changed.notify()
        return True

    def note_poll(self, *, answered: bool = True) -> None:
        """Note that IMDS was just polled. `answered`: it gave a document, and its changes are
        committed.
        """
        with self._changed:
            self._has_new_poll = True
            self._check_preparations = True
            if answered:
                self._held_until = 0.0
            self._changed.notify()

    def local(
        self,
        event_id: str,
        *,
        user: str,
        seconds: float,
        fingerprint: str | None = None,
        person_reason: str | None = None,
        act: Act = "approve",
    ) -> Approval:
        """Accept the approval of a person on this VM, or the request to prepare. Raises
        `LookupError`, `StoreError` or `TimeoutError`.
        """
        if not self._confirmed:
            raise LookupError(UNCONFIRMED)
        answer: Future[Approval] = Future()

        def work() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(
                    self._approvals.local(
                        event_id,
                        user=user,
                        fingerprint=fingerprint,
                        person_reason=person_reason,
                        act=act,
                    )
                )
            except (LookupError, StoreError) as error:
                answer.set_exception(error)

        with self._changed:
            self._people.append(work)
            self._changed.notify()
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.cancel():
                raise TimeoutError(
                    "nothing was done: the bridge is busy with other approvals; try again"
                ) from None
            raise TimeoutError("it is under way, and the disk has not answered yet") from None

    def find(self, jti: str) -> Approval | None:
        """Return the approval of that id as its last receipt shows it. Raises `StoreError`."""
        return self._approvals.find(jti)

    def run_once(self) -> None:
        """Do one round: everything that waits now, and then one step with at most one request to
        IMDS. The thread of approvals calls it; tests call it instead of a thread.
        """
        for job in self._next_jobs():
            if not self._stopping:
                self._do(job)

    @property
    def has_work(self) -> bool:
        """Check whether anything waits for the next round."""
        approves = self._people or self._has_new_poll or self._more or self._has_commands_due()
        return bool(self._confirmed and approves) or self._has_to_prepare()

    def _run(self) -> None:
        while self._wait_for_work():
            self.run_once()

    def _wait_for_work(self) -> bool:
        """Wait until there is work; return False at the end."""
        with self._changed:
            while not (self._stopping or self.has_work):
                self._changed.wait(self._idle_seconds())
            return not self._stopping

    def _idle_seconds(self) -> float | None:
        """Return the seconds until there is work, if nothing else happens; None: without a
        limit.
        """
        waits: list[float] = []
        if self._confirmed and self._commands:
            waits.append(self._held_until - self._monotonic())
        deadline = self._seconds_to_prepare()
        if deadline is not None:
            waits.append(min(deadline, CLOCK_SECONDS))
        return max(0.0, min(waits)) if waits else None

    def _next_jobs(self) -> list[Job]:
        with self._changed:
            jobs: list[Job] = []
            if self._confirmed:
                jobs += self._people
                self._people.clear()
            if self._has_to_prepare():
                self._check_preparations = False
                jobs.append(self._prepare)
            if self._confirmed:
                if self._has_new_poll:
                    self._has_new_poll = False
                    jobs.append(self._approvals.note_poll)
                if self._has_commands_due():
                    jobs.append(partial(self._verify_commands, len(self._commands)))
                jobs.append(self._step)
            return jobs

    def _has_to_prepare(self) -> bool:
        deadline = self._seconds_to_prepare()
        return self._check_preparations or (deadline is not None and deadline <= 0)

    def _seconds_to_prepare(self) -> float | None:
        """Return the seconds to the next deadline at which the VM prepares unasked, or None."""
        deadline = self._approvals.seconds_to_prepare()
        if deadline is None:
            return None
        return max(deadline, self._prepares_from - self._monotonic())

    def _has_commands_due(self) -> bool:
        return bool(self._commands) and self._monotonic() >= self._held_until

    def _do(self, job: Job) -> None:
        try:
            job()
        except StoreError as error:
            _LOG.warning(str(error), extra={"action": "store_trouble"})
        except Exception as error:  # noqa: BLE001  # it is logged
            # The last line of defence, as in the poller: one bad job must not end them all.
            _LOG.exception(
                "this is a bug in the bridge",
                extra={"action": "approval_bug", "error": type(error).__name__},
            )

    def _prepare(self) -> None:
        self._prepares_from = self._monotonic() + DEADLINE_SECONDS
        self._approvals.prepare()

    def _step(self) -> None:
        self._more = False  # after an error it goes on with the next poll, command or person
        self._more = self._approvals.act_once()

    def _verify_commands(self, count: int) -> None:
        until = self._monotonic() + VERIFY_SECONDS
        for _ in range(count):
            self._verify_command()
            if self._monotonic() >= until:
                return

    def _verify_command(self) -> None:
        message = self._commands[0]
        try:
            self._approvals.command(message)
        except StoreError:
            # Nothing was done: it stays the first in the queue.
            with self._changed:
                self._held_until = self._monotonic() + STORE_SECONDS
            raise
        except Exception:
            # A message that finds a bug must not fill the channel's window by never being settled.
            self._commands.popleft()
            message.on_settled()
            raise
        self._commands.popleft()
