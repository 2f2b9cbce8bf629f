"""The body that a webhook posts, and its content type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A body and its content type."""

    body: bytes
    content_type: str
