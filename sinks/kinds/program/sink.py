"""A local command as a destination, one at a time, without the bridge's secrets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, Final

from sinks.base import Check, Sink, SinkContext, SinkError, SinkRejected, SinkSettings
from sinks.kinds.program.lookup import check_program, reason_of, require
from sinks.kinds.program.output import Output
from sinks.kinds.program.process import Run, signal_name
from sinks.kinds.program.settings import ProgramSettings
from sinks.kinds.program.variables import environment
from sinks.shared.text import escaped
from wire.record import Record

REFUSED: Final = 65
"""EX_DATAERR of sysexits.h: the program will never take this record."""
_MARGIN_SECONDS: Final = 5.0
"""Seconds that it may take to end a program after its time is up."""


class ProgramSink(Sink[ProgramSettings]):
    """A local command: the record on its standard input, facts of it in SEB_EVENT_* variables.

    Exit code 0 acknowledges the record, 65 refuses it for good, and any other has it run again
    later, with the same record: it must be able to bear that.
    `sinks.kinds.program.variables` has the variables.
    """

    KIND: ClassVar[str] = "program"
    Settings: ClassVar[type[SinkSettings]] = ProgramSettings

    def __init__(self, name: str, settings: ProgramSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._run: Run | None = None
        self._outputs: tuple[Output, Output] | None = None
        self._aborted = False

    @property
    def deadline(self) -> float:
        """Seconds; the sink's own timeout ends a run before that."""
        return self.settings.timeout + _MARGIN_SECONDS

    @property
    def wants_heartbeats(self) -> bool:
        """False: a heartbeat is no reason to start a program every minute."""
        return False

    @property
    def _program(self) -> str:
        """The program as errors show it; its arguments may hold secrets."""
        return escaped(self.settings.command[0])

    def open(self) -> None:
        """Check that the program is there. Raises `SinkError` if it cannot be run."""
        require(self.settings.command[0])

    def maintain(self) -> None:
        """Check that the program is still there, so that its absence is noticed before an event."""
        self.open()

    def deliver(self, records: Sequence[Record]) -> None:
        """Run the program for each record. Raises `SinkError`, or `SinkRejected` for code 65."""
        for record in records:
            self._deliver(record)

    def _deliver(self, record: Record) -> None:
        run = self._run = self._start(record)
        if self._aborted:  # meanwhile; `abort` could not see the run yet
            run.kill()
        try:
            self._judge(run, run.wait(self.settings.timeout))
        finally:
            self._run = None

    def _judge(self, run: Run, code: int | None) -> None:
        """Return if the exit code is 0; otherwise end the processes that still run, and raise the
        error for the code.
        """
        if code is None:
            what = "was ended" if run.end() else "cannot be ended: see what holds it"
            raise SinkError(
                f"{self._program} did not end within {self.settings.timeout:g} s, and {what}; "
                f"raise timeout if it needs longer{_last_words(run)}"
            )
        if code == 0:
            return
        run.kill()  # what failed runs leave behind would add up
        if code == REFUSED:
            raise SinkRejected(f"{self._program} refused the record{_last_words(run)}")
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        raise SinkError(f"{self._program} {how}{_last_words(run)}")

    def _start(self, record: Record) -> Run:
        command = self.settings.command
        try:
            # Not closed by `close`: a background process of an earlier run may write to them.
            out, err = self._outputs = self._outputs or (Output(), Output())
            env = environment(record, os.environ)
            return Run(command, env=env, body=record.body, out=out, err=err)
        except (OSError, ValueError) as error:
            raise SinkError(reason_of(error, command[0]).at(self._program)) from None

    def check(self) -> Sequence[Check]:
        """Check whether the program could be run, and for what; it is not run."""
        return tuple(check_program(self.settings))

    def abort(self) -> None:
        """End the program by force, so that no thread waits for it."""
        self._aborted = True
        run = self._run
        if run is not None:
            run.kill()


def _last_words(run: Run) -> str:
    last_words = run.last_words()
    return f"; it said: {last_words}" if last_words else "; it printed nothing"
