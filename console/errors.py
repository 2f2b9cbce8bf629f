"""The error of the console's own: its answer is no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinks.shared.errors import NO, SebError


class RefusedError(SebError):
    """The answer is no; `status` and `answer` are the console's, if it was the one to refuse."""

    exit_code = NO

    def __init__(
        self, message: str, *, status: int = 0, answer: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answer = answer or {}
