"""Waiting for something that gives no sign when it happens, such as a line in a file."""

import time
from collections.abc import Callable


def eventually(done: Callable[[], bool], *, what: str, timeout: float = 15.0) -> None:
    """Look again and again until it holds. Raises `AssertionError` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come within {timeout:g} s"
        time.sleep(0.02)
