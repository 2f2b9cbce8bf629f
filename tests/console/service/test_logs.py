"""The console does not wait for its log."""

import json
import logging
import os
from collections.abc import Iterator

import pytest

from console.service import logs


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Undo what a test does to the loggers."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_log_that_no_program_reads_delays_nothing() -> None:
    """Lines above a pipe's size are logged without waiting, and come when they are read."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        logs.configure(form="json", level="info", stream=stream)
        for number in range(1_000):
            logging.getLogger("x").info("m", extra={"action": "a", "number": number})
        with os.fdopen(reader) as lines:
            assert [json.loads(next(lines))["number"] for _ in range(1_000)] == list(range(1_000))
