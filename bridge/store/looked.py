"""When IMDS last gave a valid document, kept as a file's time stamp, which needs no sync."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

LOOKED_NAME: Final = "looked"


def mark_looked(directory: Path, moment: datetime) -> None:
    """Keep the moment. Raises `OSError` or `OverflowError`."""
    path = directory / LOOKED_NAME
    stamp = int(moment.timestamp() * 1_000_000_000)
    if not path.exists():
        path.touch(mode=0o600)
    os.utime(path, ns=(stamp, stamp))


def looked_at(directory: Path) -> datetime | None:
    """The moment that is kept; None for never."""
    try:
        return datetime.fromtimestamp((directory / LOOKED_NAME).stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def forget_look(directory: Path) -> None:
    """Forget it: it was another VM's."""
    with suppress(OSError):
        (directory / LOOKED_NAME).unlink(missing_ok=True)
