"""Checks whether a program can be run, and says what to do if it cannot. It never runs one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sinks.base import Check, Problem, SinkError
from sinks.kinds.program.process import writable_by_anybody
from sinks.kinds.program.settings import ProgramSettings
from sinks.shared.text import escaped

_ABSENT: Final = Problem("the program does not exist", "install it, or correct command")
_NOT_A_FILE: Final = Problem("it is not a file", "correct command")
_NOT_EXECUTABLE: Final = Problem(
    "it is not executable", "allow it (chmod +x), or name its interpreter first in command"
)
_BY_ERRNO: Final = {
    errno.EACCES: _NOT_EXECUTABLE,
    # The file is there, so it is the interpreter of its first line that is not. A carriage return
    # at the end of that line makes a name that no interpreter has.
    errno.ENOENT: Problem(
        "the interpreter in its first line is missing",
        "correct that line, and see that lines end with a line feed alone",
    ),
    errno.ENOEXEC: Problem(
        "the system cannot run this kind of file",
        "begin a script with #!/bin/sh, or name its interpreter first in command",
    ),
    errno.E2BIG: Problem(
        "command and environment are too long for the system", "make them shorter"
    ),
    errno.EAGAIN: Problem("the system allows no more processes", "raise the limit"),
    errno.ENOMEM: Problem("the system has no memory for it", "free some"),
    errno.ETXTBSY: Problem("another process is writing it", "it is tried again"),
}


def require(program: str) -> str:
    """Return the path that would be run. Raises `SinkError` with the remedy."""
    found = shutil.which(program)
    if found is None:
        raise SinkError(_why_not(program).at(escaped(program)))
    return found


def reason_of(error: OSError | ValueError, program: str) -> Problem:
    """Return why the system did not run the program, and what to do."""
    if not isinstance(error, OSError):
        what = f"the system cannot take this command ({type(error).__name__})"
        return Problem(what, "correct command")
    if shutil.which(program) is None:
        return _why_not(program)
    problem = _BY_ERRNO.get(error.errno or 0)
    # Windows has no errno of its own for a file that is not a program (193).
    if problem is None and getattr(error, "winerror", None) == 193:  # noqa: PLR2004
        problem = _BY_ERRNO[errno.ENOEXEC]
    return problem or Problem(f"it cannot be run: {error.strerror}", "try it by hand")


def check_program(settings: ProgramSettings) -> Iterator[Check]:
    """Yield the lines of `seb check` about the program."""
    program = settings.command[0]
    try:
        path = require(program)
        open_to_all = writable_by_anybody(Path(path))
    except (SinkError, OSError) as error:
        problem = error.problem if isinstance(error, SinkError) else Problem(str(error))
        remedy = problem.remedy or "see that the program can be read"
        yield Check.fail(problem.what, remedy)
        return
    if open_to_all:
        yield Check.warn(
            f"{escaped(path)} can be changed by any account, and runs as seb does",
            "let only its owner write it (chmod o-w)",
        )
    yield Check.ok(f"{escaped(path)} can be run, for {settings.timeout:g} s a record")
    if settings.types is None:
        yield Check.warn(
            "it is run for records about the bridge itself too, such as its start",
            'set types to ["seb.event.*"], or to all that it knows what to do with',
        )


def _why_not(program: str) -> Problem:
    path = Path(program)
    if not os.path.dirname(program) or not path.exists():  # noqa: PTH120  # Path drops a lone ./
        return _ABSENT
    return _NOT_EXECUTABLE if path.is_file() else _NOT_A_FILE
