"""A system that can start no thread, as at a limit of tasks or without memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def no_new_threads(*, called: str = "") -> Iterator[None]:
    """Let no thread of this process be started whose name begins so; those that run go on."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(called):
            raise RuntimeError("can't start new thread")
        start(thread)

    with patch.object(threading.Thread, "start", refuse):
        yield
