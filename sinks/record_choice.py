"""Which records a sink takes, by its settings; it can be stored, and asked later what it took."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from wire.strictjson import canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChoice:
    """The settings `TYPES` and `AFFECTS_THIS_VM_ONLY` of a sink."""

    types: Sequence[str] | None = None
    """Globs of record types; None: all."""
    affects_this_vm_only: bool = False

    def accepts(self, record_type: str, concerns_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Check whether a record of this type is taken; `concerns_this_vm` as in `Sink.accepts`."""
        if self.affects_this_vm_only and concerns_this_vm is False:
            return False
        return self.types is None or any(fnmatchcase(record_type, glob) for glob in self.types)

    @property
    def text(self) -> str:
        """The choice as text, by which it is stored."""
        chosen = {"types": self.types, "affects": self.affects_this_vm_only}
        return canonical_json(chosen).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the choice that has this text. Raises `ValueError` if no choice has it."""
        try:
            chosen = json.loads(text)
            return cls(types=chosen["types"], affects_this_vm_only=chosen["affects"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the choice of a sink: {text!r}") from error
