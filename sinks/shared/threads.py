"""Threads, on a system that may have none to give."""

from __future__ import annotations

import threading


def try_to_start(thread: threading.Thread) -> bool:
    """Start a thread; return False if the system can start none now, as at a limit of tasks or
    without memory. The same thread may be tried again.
    """
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
