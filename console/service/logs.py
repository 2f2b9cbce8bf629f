"""Log lines on standard error: an `action` and named fields, as logfmt or JSON, without secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from sinks.shared.log_lines import LineHandler

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_HIDDEN: Final = "[secret]"
_MIN_SECRET_CHARACTERS: Final = 4
"""Shorter secrets, in characters, are not hidden: that would cut words."""
# These libraries repeat at length what a source's own error says.
_QUIET: Final = {
    "alembic": logging.WARNING,
    "azure": logging.CRITICAL,
    "sqlalchemy": logging.ERROR,
    "uvicorn": logging.WARNING,
}


def configure(
    *, form: str, level: str, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Send all logs to standard error, in the form `auto`, `logfmt` or `json`."""
    stream = stream or sys.stderr
    logfmt = form == "logfmt" or (form == "auto" and stream.isatty())
    handler = LineHandler(stream)
    handler.setFormatter(_ConsoleFormatter(logfmt=logfmt, secrets=secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)


class _ConsoleFormatter(logging.Formatter):
    def __init__(self, *, logfmt: bool, secrets: Iterable[str]) -> None:
        super().__init__()
        self._logfmt = logfmt
        self._secrets = sorted({s for s in secrets if len(s) >= _MIN_SECRET_CHARACTERS}, key=len)[
            ::-1
        ]

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", record.name),
            "message": record.getMessage(),
        }
        fields |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD and v is not None}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        plain = {key: self._plain(value) for key, value in fields.items()}
        if not self._logfmt:
            return json.dumps(plain)
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in plain.items())

    def _plain(self, value: object) -> object:
        if isinstance(value, (bool, int, float)):
            return value
        text = str(value)
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def _quoted(text: str) -> str:
    plain = text and text.isprintable() and text.isascii() and not set(text) & set(' ="\\')
    return text if plain else json.dumps(text)
