"""Files with keys: read for the commands that sign, and written so that only their owner can read
them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge import system
from wire.keys import MAX_FILE_BYTES, KeyFileError, SigningKey, parse_jwk, parse_private


def write_private(jwk: Mapping[str, str], path: Path) -> None:
    """Write a private key that only its owner may read. Raises `FileExistsError`, or `OSError`."""
    text = json.dumps(dict(jwk), indent=2) + "\n"
    with os.fdopen(system.create_private(path), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def read_jwk(path: Path) -> dict[str, Any]:
    """Return the JSON object in a key file. Raises `KeyFileError`, which shows nothing of it."""
    return parse_jwk(_content(path), name=path)


def read_private(path: Path) -> SigningKey:
    """Return the private key in a file. Raises `KeyFileError`."""
    return parse_private(_content(path), name=path)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
