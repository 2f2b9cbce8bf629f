"""Every forgery, each with the one reason that is right; in-process and over a channel alike."""

from __future__ import annotations

from collections.abc import Sequence

from support.commands.forged_claims import FORGED_CLAIMS
from support.commands.forged_tokens import FORGED_TOKENS
from support.commands.forgery import Forgery, Scene

FORGERIES: Sequence[Forgery] = (*FORGED_TOKENS, *FORGED_CLAIMS)

__all__ = ["FORGERIES", "Forgery", "Scene"]
