"""The error that the console adds to those of all commands: a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinks.shared.errors import NO, SebError


class RefusedError(SebError):
    """The request was refused; `status` and `answer` are the console's if it answered over HTTP."""

    exit_code = NO

    def __init__(
        self, message: str, *, status: int = 0, answer: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answer = answer or {}
