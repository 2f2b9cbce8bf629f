"""The errors of a delivery: the classes of the contract, their texts and their causes."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_AGAINST_THE_STANDARD: Final = re.compile(
    "key usage|basic constraints|key identifier|path ?len|version 3", re.IGNORECASE
)
"""Texts of OpenSSL about a certificate that is trusted but violates RFC 5280."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fact and its remedy, one clause each; as text, one line: `fact; remedy`."""

    what: str
    remedy: str | None = None

    def at(self, where: object) -> Problem:
        """Return the same problem with the place in front."""
        return Problem(f"{where}: {self.what}", self.remedy)

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


class SinkError(Exception):
    """The destination did not acknowledge; the same record is tried again later.

    `remedy`: what to do about it, if the message does not say so. `retry_after`: seconds that the
    destination asked for, or None. `delivered`: how many records at the front of the batch were
    acknowledged before the error. `stays_open`: from `deliver` or `maintain`, the connection is
    good and only this was refused: the sink is not closed and opened again, and is maintained until
    the next try. The message is shown to operators and stored: it must never contain a secret.
    """

    def __init__(
        self,
        message: str | Problem,
        *,
        remedy: str | None = None,
        retry_after: float | None = None,
        delivered: int = 0,
        stays_open: bool = False,
    ) -> None:
        self.problem = message if isinstance(message, Problem) else Problem(message, remedy)
        super().__init__(str(self.problem))
        self.retry_after = retry_after
        self.delivered = delivered
        self.stays_open = stays_open


class SinkPaused(SinkError):
    """The destination accepts nothing more; the sink pauses and keeps its backlog until a person
    acts.
    """


class SinkRejected(Exception):
    """The destination will never take this record; it is marked as dead, with the reason.

    `delivered`: how many records from the front of the batch were acknowledged before it, so the
    refused record is `records[delivered]`.
    `tries`: mark it as dead only after this many refusals in a row (1: at once).
    `stays_open`: as in `SinkError`, between those tries.
    """

    def __init__(
        self, message: str, *, delivered: int = 0, tries: int = 1, stays_open: bool = False
    ) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.tries = tries
        self.stays_open = stays_open


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those inside it, outer ones first, wherever libraries keep them."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [getattr(found, "reason", None), *found.args, found.__cause__]
        waiting += [getattr(found, "inner_error", None), found.__context__]


def certificate_remedy(error: ssl.SSLCertVerificationError, otherwise: str) -> str:
    """Return the remedy for a certificate that was refused; `otherwise` if its authority is
    unknown. Python 3.13 and later refuse an authority without keyUsage, even one that is trusted.
    """
    if _AGAINST_THE_STANDARD.search(str(error)):
        return (
            "its authority is known, but made against RFC 5280: issue it again, with keyUsage "
            "(keyCertSign) and critical basicConstraints; trusting it elsewhere does not help"
        )
    return otherwise
