"""A local command as a destination: its exit code is the acknowledgement."""

from sinks.kinds.program.sink import ProgramSink

__all__ = ["ProgramSink"]
