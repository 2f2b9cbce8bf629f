"""The errors that end a command of the console, each with its exit code."""

from __future__ import annotations

from typing import ClassVar, Final

OK: Final = 0
NO: Final = 1
UNREACHABLE: Final = 69
BUG: Final = 70
TRY_LATER: Final = 75
NOT_PERMITTED: Final = 77
CONFIGURATION: Final = 78


class ConsoleError(Exception):
    """A command ends here; the message says what is wrong and what to do about it."""

    exit_code: ClassVar[int] = BUG


class ConfigurationError(ConsoleError):
    """A setting is wrong or missing; the message names the variable, never its secret value."""

    exit_code = CONFIGURATION


class UnreachableError(ConsoleError):
    """The database, a source or the running console did not answer."""

    exit_code = UNREACHABLE


class NotPermittedError(ConsoleError):
    """The console refused the person or the token."""

    exit_code = NOT_PERMITTED
