"""The meaning of an answer to a delivery: accepted, again later, never, or paused. It sends
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from sinks.base import SinkError, SinkPaused, SinkRejected
from sinks.http.address import origin
from sinks.http.client import Answer

_LATER: Final = (408, 425, 429)
# About key, path or proxy: the next record would meet the same answer, and once a person has
# changed the setting, this one is taken too.
_SETTINGS: Final = (401, 403, 404, 405, 407)
_PROXY_HINT: Final = "see user and password in PROXY, HTTPS_PROXY or HTTP_PROXY"
_TRIES: Final = 5
"""After this many refusals in a row, a record is considered refused."""


def judge(
    answer: Answer, *, shown: str, now: datetime, hints: Mapping[int, str], resume: str
) -> None:
    """Raise what the answer means, unless it says that the record was accepted.

    `shown`: the address for errors; `hints`: remedies by status; `resume`: what ends a pause.
    Raises `SinkError`, `SinkPaused` on 410, or `SinkRejected` on other 4xx.
    """
    status = answer.status
    answered = f"{shown} answered {status_words(status)}"
    if 200 <= status < 300:  # noqa: PLR2004  # HTTP's classes are read as numbers
        return
    if 300 <= status < 400:  # noqa: PLR2004
        raise SinkError(f"{answered}, which is not followed{pointing_to(answer.location)}")
    if status == HTTPStatus.GONE:
        raise SinkPaused(f"{answered}: it accepts no more records", remedy=resume)
    wait = seconds_to_wait(answer.retry_after, now=now)
    if status in _SETTINGS:
        hint = _PROXY_HINT if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED else hints[status]
        raise SinkError(answered, remedy=hint, retry_after=wait)
    if status in _LATER or not 400 <= status < 500:  # noqa: PLR2004
        raise SinkError(answered, retry_after=wait)
    hint = hints.get(status, "")
    raise SinkRejected(f"{answered}; {hint}" if hint else answered, tries=_TRIES)


def seconds_to_wait(retry_after: str | None, *, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3), at least one; None if it is
    missing or not valid.
    """
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError, IndexError, TypeError):
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - now).total_seconds()
    return max(1.0, seconds) if seconds > 0 and math.isfinite(seconds) else None


def status_words(status: int) -> str:
    """Return a status with its name, if it has one."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def pointing_to(location: str | None) -> str:
    """Return the target of a redirect, as far as it may be shown."""
    try:
        target = origin(urlsplit(location or ""))
    except ValueError:
        target = ""
    if not target.startswith("http") or not target.isprintable():
        return "; set the receiver's own address"
    return f"; it points to {target}: set the receiver's own address"
