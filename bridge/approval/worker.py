"""The thread of approvals: people, polls, commands. It never waits for a sink."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from bridge.approval.approvals import Approvals
from bridge.store.approvals import Entry
from bridge.store.database import StoreError
from sinks.base import MAX_TOKEN_BYTES, CommandMessage

log: Final = logging.getLogger(__name__)

WAITING: Final = 64
"""How many commands may wait."""
FIRST_LOOK_SECONDS: Final = 5.0
"""How long commands wait for this run's first poll, which may find the event that they name."""
STORE_SECONDS: Final = 1.0
"""How long a command waits that could not be stored, or until the next poll."""

UNCONFIRMED: Final = "the VM identity is not confirmed by IMDS yet; try again"

Job = Callable[[], object]


class Approver:
    """Does one thing at a time, commands last. All methods may be called from any thread."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._changed = threading.Condition()
        self._people: deque[Job] = deque()
        self._commands: deque[CommandMessage] = deque()
        self._looked = False
        self._stopping = False
        self._held_until = 0.0
        self._thread = threading.Thread(target=self._run, name="approver", daemon=True)

    def start(self) -> None:
        """Begin: IMDS has confirmed the VM identity. Until then nothing is approved."""
        with self._changed:
            if not self._looked:
                self._held_until = time.monotonic() + FIRST_LOOK_SECONDS
        self._thread.start()

    @property
    def is_started(self) -> bool:
        """Whether it has begun."""
        return self._thread.ident is not None

    def stop(self, seconds: float) -> None:
        """End within so many seconds; what waits is not settled, so its channel keeps it."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self.is_started:
            self._thread.join(seconds)

    def command(self, message: CommandMessage) -> bool:
        """Take a command from a channel; False where too many are waiting."""
        # What is too large is refused as such, and need not be kept whole until then.
        message = replace(message, token=message.token[: MAX_TOKEN_BYTES + 1])
        with self._changed:
            if len(self._commands) >= WAITING or self._stopping:
                return False
            self._commands.append(message)
            self._changed.notify()
        return True

    def polled(self) -> None:
        """IMDS was just polled."""
        with self._changed:
            self._looked = True
            self._held_until = 0.0
            self._changed.notify()

    def local(
        self,
        event_id: str,
        *,
        user: str,
        seconds: float,
        fingerprint: str | None = None,
        why: str | None = None,
    ) -> Entry:
        """Approve for a person on this VM. Raises `LookupError`, `StoreError` or `TimeoutError`."""
        if not self.is_started:
            raise LookupError(UNCONFIRMED)
        answer: Future[Entry] = Future()

        def work() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(
                    self._approvals.local(event_id, user=user, fingerprint=fingerprint, why=why)
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
                raise TimeoutError("nothing was done: other approvals are under way") from None
            raise TimeoutError("it is under way, and IMDS has not answered yet") from None

    def find(self, jti: str) -> Entry | None:
        """How far an approval has come. Raises `StoreError`."""
        return self._approvals.find(jti)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except StoreError as error:
                log.warning(str(error), extra={"action": "store_trouble"})
            except Exception as error:
                # The last line of defence, as in the poller: one bad job must not end them all.
                log.exception(
                    "this is a bug in the bridge",
                    extra={"action": "approval_bug", "error": type(error).__name__},
                )

    def _next(self) -> Job | None:
        """The next job, once there is one; None at the end."""
        with self._changed:
            while not self._stopping:
                if self._people:
                    return self._people.popleft()
                if self._looked:
                    self._looked = False
                    return self._approvals.polled
                held = max(0.0, self._held_until - time.monotonic())
                if self._commands and not held:
                    return self._take_command
                self._changed.wait(held if self._commands else None)
        return None

    def _take_command(self) -> None:
        message = self._commands[0]
        try:
            self._approvals.command(message)
        except StoreError:
            # Nothing was done: it stays the first in the queue.
            with self._changed:
                self._held_until = time.monotonic() + STORE_SECONDS
            raise
        except Exception:
            # A message that finds a bug must not fill the channel's window by never being settled.
            self._commands.popleft()
            message.settled()
            raise
        self._commands.popleft()
