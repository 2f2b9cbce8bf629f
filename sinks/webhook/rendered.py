"""What a webhook posts: bytes, and what they are. It never says how they are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A body and what it is."""

    body: bytes
    content_type: str
