"""The errors that end a command, each with its exit code; no module raises `SystemExit` itself."""

from __future__ import annotations

import errno
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

_PASSING: Final = frozenset(
    getattr(errno, name, None)
    for name in (
        "EIO",
        "ENOSPC",
        "EDQUOT",
        "EMFILE",
        "ENFILE",
        "ENOMEM",
        "EAGAIN",
        "ESTALE",
        "ETIMEDOUT",
    )
) - {None}
"""The errors of files that no change of a setting mends."""


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


def is_passing(error: OSError) -> bool:
    """Check whether an error of a file may pass by itself."""
    return error.errno in _PASSING


def unusable_file(what: str, error: OSError, remedy: str | None = None) -> SebError:
    """Return the error to raise for a file that a setting names. It is a `TryLaterError` if the
    cause may pass by itself: then the service manager starts the program again.
    """
    if is_passing(error):
        return TryLaterError(
            f"{what} just now ({error.strerror})", remedy="check the disk and start again"
        )
    return ConfigurationError(f"{what} ({error.strerror})", remedy=remedy)
