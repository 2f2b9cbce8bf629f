"""The errors that end a command, each with its exit code; no module raises `SystemExit` itself."""

from __future__ import annotations

from typing import ClassVar, Final

OK: Final = 0
NO: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 69
BUG: Final = 70
NO_REPLY: Final = 75
"""No reply in time, or nothing is wrong and it may work later."""
NOT_PERMITTED: Final = 77
CONFIGURATION: Final = 78


class SebError(Exception):
    """An error that ends a command. `what` says what is wrong, `remedy` what to do about it."""

    exit_code: ClassVar[int] = BUG

    def __init__(self, what: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class ConfigurationError(SebError):
    """A setting is wrong or missing; the message names the variable, never its secret value."""

    exit_code = CONFIGURATION


class UnreachableError(SebError):
    """IMDS, a sink, the database, a source or the running console did not answer."""

    exit_code = UNREACHABLE


class NotPermittedError(SebError):
    """The user or the token is not permitted to do this."""

    exit_code = NOT_PERMITTED


class TryLaterError(SebError):
    """Nothing is wrong with the command; it may work later."""

    exit_code = NO_REPLY
