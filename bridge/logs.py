"""Log lines for people and for machines: an `action` and named fields, logfmt or JSON.

A line is written with `logger.info("…", extra={"action": …, …})`. Known secrets are cut out of
every line here, whoever wrote it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_HIDDEN: Final = "[secret]"
# Libraries say once more, at length, what a sink's own error already says.
_QUIET: Final = {
    "apscheduler": logging.ERROR,
    "azure": logging.CRITICAL,
    "urllib3": logging.ERROR,
}


class Redactor:
    """Cuts known secrets out of text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one secret may contain another. Very short ones would cut words.
        self._secrets = sorted({s for s in secrets if len(s) > 3}, key=len, reverse=True)  # noqa: PLR2004

    def __call__(self, text: str) -> str:
        """The text without any secret."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text


class _Formatter(logging.Formatter):
    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", record.name),
            "message": record.getMessage(),
        }
        fields |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD and v is not None}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return fields


class JsonFormatter(_Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return self._redact(json.dumps(self.fields(record), ensure_ascii=False, default=str))


class LogfmtFormatter(_Formatter):
    """`key=value` pairs, values quoted where they must be; control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        pairs = (f"{key}={_quoted(value)}" for key, value in self.fields(record).items())
        return self._redact(" ".join(pairs))


def configure(
    *, form: str, level: str, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> Redactor:
    """Send all logs to standard error in the form; returns what cuts out the secrets."""
    stream = stream or sys.stderr
    redact = Redactor(secrets)
    logfmt = form == "logfmt" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogfmtFormatter(redact) if logfmt else JsonFormatter(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    return redact


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    plain = text and text.isprintable() and not any(sign in text for sign in ' ="\\')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
