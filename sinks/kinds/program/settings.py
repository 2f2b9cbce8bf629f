"""The program to run, and for how long; it may be installed later."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from sinks.kinds.program.process import WINDOWS
from sinks.settings import PreparingSettings

# Words that only a shell understands: without one they would be arguments like any other.
_SHELL_WORDS: Final = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"})


def split_command(text: str, *, windows: bool = WINDOWS) -> tuple[str, ...]:
    """Split as a POSIX shell would; on Windows only double quotes group. Raises `ValueError`."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    if windows:
        lexer.escape = ""
        lexer.quotes = '"'
    try:
        words = tuple(lexer)
    except ValueError:
        raise ValueError("a quote is not closed, or a backslash is at the end") from None
    if _SHELL_WORDS.intersection(words):
        raise ValueError(
            'it is run without a shell, so | & ; < > mean nothing; give ["sh", "-c", "…"], or '
            "write a script"
        )
    return words


def _words(value: object) -> object:
    """Read a list from an environment variable: JSON text, or a line to split."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return split_command(value)
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("this begins like a JSON list, but is not valid JSON") from None


def _can_be_run(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0].strip():
        raise ValueError("name a program, with its arguments if it takes any")
    if any("\0" in word for word in words):
        raise ValueError("a program cannot be given a NUL character")
    return words


Command = Annotated[tuple[str, ...], BeforeValidator(_words), AfterValidator(_can_be_run)]


class ProgramSettings(PreparingSettings):
    """The program to run for each record."""

    command: Command = Field(
        description=(
            "Program and arguments: a JSON list, or a line that is split as a shell would, but run "
            "without one"
        )
    )
    timeout: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds that one run may take before it is ended",
    )
