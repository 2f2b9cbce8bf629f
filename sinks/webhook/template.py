"""A webhook's own body, rendered from a record in Jinja2's sandbox, within limits."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sinks.record import EventRecord

FILE_PREFIX: Final = "file:"
_LARGEST: Final = 1024 * 1024
_SLOWEST: Final = 5.0
_LONGEST_REASON: Final = 200
# Whatever expressions and filters of a template raise; the same record raises it again.
_MISTAKES: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class TemplateFormatError(ValueError):
    """The template cannot be read or compiled; the message names the line."""


class RenderError(ValueError):
    """The template does not fit this record; the message names the line."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, and a limit on what one multiplication can make."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse powers, and repeating a text or a list until memory ends."""
        if operator == "**":
            raise RenderError("** is not for templates")
        for sequence, count in ((left, right), (right, left)):
            if isinstance(count, int) and hasattr(sequence, "__len__"):
                _limit(len(sequence) * count)
        return super().call_binop(context, operator, left, right)


def compile_template(text: str) -> Template:
    """A template from its text, or from the file of `file:`. Raises `TemplateFormatError`."""
    try:
        if text.startswith(FILE_PREFIX):
            text = Path(text.removeprefix(FILE_PREFIX)).read_text(encoding="utf-8-sig")
        return _environment().from_string(text)
    except TemplateSyntaxError as error:
        raise TemplateFormatError(f"template, line {error.lineno}: {error.message}") from None
    except UnicodeDecodeError:
        raise TemplateFormatError("the template's file is not UTF-8") from None
    except OSError as error:
        raise TemplateFormatError(
            f"the template's file cannot be read: {error.strerror or type(error).__name__}"
        ) from None


class Rendered(NamedTuple):
    """A body and its content type."""

    body: bytes
    content_type: str


def render(template: Template, record: EventRecord) -> Rendered:
    """The body for this record: JSON if it reads as JSON, else text. Raises `RenderError`."""
    envelope = json.loads(record.body)
    data = envelope["data"]
    try:
        text = _collect(
            template,
            {"record": envelope, "data": data, "event": data.get("event"), "vm": data.get("vm")},
        )
        body = text.strip().encode()
    except _MISTAKES as error:
        raise RenderError(f"{_where(error)}: {_reason(error)}") from None
    if not body:
        raise RenderError("template: nothing was rendered for this record")
    return Rendered(body, _content_type(body))


def _environment() -> _Sandbox:
    # No autoescape: the body is JSON or text, not HTML. Jinja's own tojson escapes for HTML.
    environment = _Sandbox(undefined=StrictUndefined, autoescape=False)
    environment.filters["tojson"] = _to_json
    return environment


def _to_json(value: object) -> str:
    if isinstance(value, Undefined):
        return str(value)  # raises, and names what is missing
    return json.dumps(value, ensure_ascii=False)


def _collect(template: Template, variables: Mapping[str, Any]) -> str:
    """The rendered text, given up once it is too large or takes too long."""
    parts, size, until = [], 0, time.monotonic() + _SLOWEST
    for part in template.generate(variables):
        size += len(part)
        _limit(size)
        if time.monotonic() > until:
            raise RenderError(f"rendering took more than {_SLOWEST:g} s")
        parts.append(part)
    return "".join(parts)


def _limit(size: int) -> None:
    if size > _LARGEST:
        raise RenderError(f"more than {_LARGEST // 1024} KiB were rendered")


def _where(error: BaseException) -> str:
    """The template's line: Jinja puts its frames into the trace, under this file name."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
    return f"template, line {lines[-1]}" if lines else "template"


def _reason(error: BaseException) -> str:
    if isinstance(error, (TemplateError, RenderError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return text[:_LONGEST_REASON]


def _content_type(body: bytes) -> str:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return "text/plain; charset=utf-8"
    return "application/json"
