"""A call with a time limit, on a thread of its own. It cannot stop the call, only stop waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class StuckError(TimeoutError):
    """The call did not end in time, and its thread is still waiting."""


def call_with_timeout(seconds: float, work: Callable[[], T]) -> T:
    """Run a function on a thread. Raises what the function raises, or `StuckError` if it has not
    ended in time; the caller then cuts what the function waits for.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # handed to the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="call-with-timeout", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise StuckError
    return results[0]
