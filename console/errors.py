"""The errors that end a command of the console, each with its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

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


class TryLaterError(ConsoleError):
    """Nothing is wrong with the command; it may work later."""

    exit_code = TRY_LATER


class RefusedError(ConsoleError):
    """The answer is no; `status` and `answer` are the console's, if it was the one to refuse."""

    exit_code = NO

    def __init__(
        self, message: str, *, status: int = 0, answer: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answer = answer or {}
