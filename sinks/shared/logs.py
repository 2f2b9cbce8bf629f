"""Log lines of the bridge and the console: an `action` and named fields, as logfmt or JSON, without
known secrets. Use `logger.info("…", extra={"action": …, …})`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, TextIO
from urllib.parse import quote, urlsplit

from sinks.shared.log_lines import LineHandler, write_line
from sinks.shared.text import escaped

_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_HIDDEN: Final = "[secret]"
# These libraries repeat at length what an error of a sink or a source says itself.
_QUIET: Final = {
    "alembic": logging.WARNING,
    "apscheduler": logging.ERROR,
    "azure": logging.CRITICAL,
    "httpx2": logging.ERROR,
    "sqlalchemy": logging.ERROR,
    "urllib3": logging.ERROR,
    "uvicorn": logging.WARNING,
    "waitress": logging.ERROR,
}


class Redactor:
    """Removes known secrets from texts, even quoted, escaped or shortened ones."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for part in _parts(secret) for form in _forms(part)}
        # The longest first: one secret may contain another. Very short ones would cut words.
        self._secrets = sorted({s for s in forms if len(s) > 3}, key=len, reverse=True)  # noqa: PLR2004

    def __call__(self, text: str) -> str:
        """Return the text without any secret."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def _parts(secret: str) -> Iterator[str]:
    """Yield a secret, and the parts of it that are secret by themselves."""
    yield secret
    yield from secret.split()  # two keys while rotating
    for field in secret.split(";"):  # a connection string
        name, _, value = field.partition("=")
        if name.strip().lower().endswith(("key", "signature", "password")):
            yield value
    try:
        parts = urlsplit(secret)
    except ValueError:
        return
    if parts.scheme in ("http", "https"):
        # Errors of HTTP libraries show path and query, which contain the token of a webhook.
        yield f"{parts.path}?{parts.query}" if parts.query else parts.path
        yield from (parts.path, parts.query)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    for safe in ("", "/"):
        try:
            quoted = quote(secret, safe=safe)
        except UnicodeEncodeError:
            continue
        yield from (quoted, re.sub("%..", lambda code: code[0].lower(), quoted))
        yield quoted.replace("%20", "+")


class _Formatter(logging.Formatter):
    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of the line; every text is without secrets."""
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", record.name),
            "message": _message(record),
        }
        fields |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD and v is not None}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return {key: self._plain(value) for key, value in fields.items()}

    def _plain(self, value: object) -> object:
        # Before a line is made of it: a secret such as `true` must not be cut out of the syntax.
        if isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if isfinite(value) else str(value)
        return self._redact(str(value))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # a library's format may not fit
        return str(record.msg)


class JsonFormatter(_Formatter):
    """Formats a line as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return escaped(json.dumps(self.fields(record), ensure_ascii=False))


class LogfmtFormatter(_Formatter):
    """Formats a line as `key=value` pairs, with values quoted if they need it; control characters
    are escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        pairs = (f"{key}={_quoted(value)}" for key, value in self.fields(record).items())
        return " ".join(pairs)


def configure(
    *, form: str, level: str, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> Redactor:
    """Send all logs to standard error in this form; return the object that removes secrets."""
    stream = stream or sys.stderr
    redact = Redactor(secrets)
    logfmt = form == "logfmt" or (form == "auto" and stream.isatty())
    handler = LineHandler(stream)
    handler.setFormatter(LogfmtFormatter(redact) if logfmt else JsonFormatter(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    return redact


def flush() -> None:
    """Wait until the lines of the log are written, for at most a second."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def dropped() -> int:
    """Return how many lines of the log were lost since the start."""
    handlers = logging.getLogger().handlers
    return sum(each.lines.dropped for each in handlers if isinstance(each, LineHandler))


def complain(text: str) -> None:
    """Print on standard error why the program ends. If that cannot be written, the program ends
    without it.
    """
    flush()
    if sys.stderr is not None:
        write_line(sys.stderr, text)


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    plain = text and text.isprintable() and not any(sign in text for sign in ' ="\\')
    return text if plain else escaped(json.dumps(text, ensure_ascii=False))
