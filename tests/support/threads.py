"""A system that can start no thread, as at a limit of tasks or without memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def no_new_threads() -> Iterator[None]:
    """Let no thread of this process be started; those that run go on."""
    error = RuntimeError("can't start new thread")
    with patch.object(threading.Thread, "start", side_effect=error):
        yield
