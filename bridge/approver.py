"""The thread that approvals happen on: commands, a person's word, and a look after every poll.

What comes in while too much is waiting is turned away; nothing here waits for a sink.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from bridge.approvals import Approvals
from bridge.ledger import Entry
from bridge.store import StoreError
from sinks.base import CommandMessage

log: Final = logging.getLogger(__name__)

WAITING: Final = 64
"""How many commands may wait; each is at most 8 KiB long, or is refused at sight."""

Job = Callable[[], object]


class Approver:
    """Does one thing after the other. All methods may be called from any thread."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._jobs: queue.Queue[Job | None] = queue.Queue(WAITING)
        self._look = threading.Event()
        self._thread = threading.Thread(target=self._run, name="approver", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End after what is under way, within so many seconds."""
        self._put(None)
        self._thread.join(seconds)

    def command(self, message: CommandMessage) -> bool:
        """Take a command from a channel; False where too many are waiting."""
        return self._put(lambda: self._approvals.command(message))

    def polled(self) -> None:
        """IMDS was just looked at."""
        if not self._look.is_set():
            self._look.set()
            self._put(self._after_look)

    def local(self, event_id: str, *, user: str, seconds: float) -> Entry:
        """Carry out what a person on this VM said, within so many seconds.

        Raises `LookupError` with the reason, `StoreError`, or `TimeoutError`.
        """
        answer: Future[Entry] = Future()

        def work() -> None:
            try:
                answer.set_result(self._approvals.local(event_id, user=user))
            except (LookupError, StoreError) as error:
                answer.set_exception(error)

        if not self._put(work):
            raise TimeoutError("too many commands are waiting")
        return answer.result(seconds)

    def _after_look(self) -> None:
        self._look.clear()
        self._approvals.polled()

    def _put(self, job: Job | None) -> bool:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
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
