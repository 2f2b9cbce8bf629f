"""Program sinks that run a given command, and what they tell of a delivery that fails."""

import sys

import pytest

from sinks.base import SinkError
from sinks.kinds.program import ProgramSink
from sinks.kinds.program.settings import ProgramSettings
from sinks.testing import sample_context, sample_record


def a_sink(*command: object, timeout: float = 30.0) -> ProgramSink:
    """A sink that runs this."""
    settings = ProgramSettings(
        kind="program", command=tuple(map(str, command)), timeout=timeout, types=("seb.event.*",)
    )
    return ProgramSink("drain", settings, sample_context())


def python(code: str, *arguments: object, timeout: float = 30.0) -> ProgramSink:
    """A sink that runs this with Python, which is the same on every system."""
    return a_sink(sys.executable, "-SEc", code, *arguments, timeout=timeout)


def shell(code: str, *arguments: object, timeout: float = 30.0) -> ProgramSink:
    """A sink that runs this with the system's shell."""
    return a_sink("/bin/sh", "-c", code, "sh", *arguments, timeout=timeout)


def failure(sink: ProgramSink) -> str:
    """What is told of a delivery that fails."""
    with pytest.raises(SinkError) as caught:
        sink.deliver([sample_record()])
    return str(caught.value)
