"""A webhook's own body, rendered from a record in Jinja2's sandbox, within limits."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sinks.shared.errors import is_passing, unusable_file
from wire.record import Record

FILE_PREFIX: Final = "file:"
_MAX_BYTES: Final = 1024 * 1024
_MAX_SECONDS: Final = 5.0
_MAX_REASON_LENGTH: Final = 200
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
    """The template cannot be rendered for this record; the message names the line."""


class _TooSlow(BaseException):
    """Ends a rendering wherever it is. It is not an `Exception`: filters of Jinja2 catch some."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with a limit on the result of one multiplication."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse powers, and the repetition of a text or list until memory ends."""
        if operator == "**":
            raise RenderError("** is not for templates")
        for sequence, count in ((left, right), (right, left)):
            if isinstance(count, int) and hasattr(sequence, "__len__"):
                _limit(len(sequence) * count)
        return super().call_binop(context, operator, left, right)


def compile_template(text: str) -> Template:
    """Return a template from its text, or from the file that `file:` names. Raises
    `TemplateFormatError`, or `TryLaterError` if the file cannot be read just now.
    """
    try:
        if text.startswith(FILE_PREFIX):
            text = Path(text.removeprefix(FILE_PREFIX)).read_text(encoding="utf-8-sig")
        return _environment().from_string(text)
    except TemplateSyntaxError as error:
        raise TemplateFormatError(f"template, line {error.lineno}: {error.message}") from None
    except UnicodeDecodeError:
        raise TemplateFormatError("the template's file is not UTF-8") from None
    except OSError as error:
        what = "the template's file cannot be read"
        if is_passing(error):
            raise unusable_file(what, error) from None
        raise TemplateFormatError(f"{what}: {error.strerror or type(error).__name__}") from None


class Rendered(NamedTuple):
    """A body and its content type."""

    body: bytes
    content_type: str


def render(template: Template, record: Record) -> Rendered:
    """Return the body for this record: JSON if it can be read as JSON, otherwise text. Raises
    `RenderError`.
    """
    envelope = record.envelope()
    data = record.data
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
    """Return the rendered text. Raises `RenderError` if it is too large or takes too long.

    A trace function checks the time before each line of Python that the rendering runs, so a loop
    without output ends too. A watching thread could not end it, and would leave it running for
    ever; a process for each record would cost far more than the few lines of a template.
    """
    parts = list[str]()
    size = 0
    until = time.monotonic() + _MAX_SECONDS

    def end_if_late(_frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > until:
            raise _TooSlow
        return end_if_late

    before = sys.gettrace()
    sys.settrace(end_if_late)
    try:
        for part in template.generate(variables):
            size += len(part)
            _limit(size)
            parts.append(part)
    except _TooSlow as slow:
        lines = [template.get_corresponding_lineno(line) for line in _lines(slow)]
        where = f", in line {lines[-1]}" if lines else ""
        raise RenderError(f"rendering took more than {_MAX_SECONDS:g} s{where}") from None
    finally:
        sys.settrace(before)
    return "".join(parts)


def _limit(size: int) -> None:
    if size > _MAX_BYTES:
        raise RenderError(f"more than {_MAX_BYTES // 1024} KiB were rendered")


def _where(error: BaseException) -> str:
    """Return the template's line in a traceback, where Jinja's frames have this file name."""
    lines = _lines(error)
    return f"template, line {lines[-1]}" if lines else "template"


def _lines(error: BaseException) -> list[int]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.lineno or 0 for frame in frames if frame.filename == "<template>"]


def _reason(error: BaseException) -> str:
    if isinstance(error, (TemplateError, RenderError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return text[:_MAX_REASON_LENGTH]


def _content_type(body: bytes) -> str:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return "text/plain; charset=utf-8"
    return "application/json"
