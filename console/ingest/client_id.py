"""The console's own client id at a broker: the same at each start, and different for each
console.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from pathlib import Path
from typing import Final
from uuid import uuid4

from console.db.connection.opening import DATABASE_FILE

_LOG: Final = logging.getLogger("console")


def kept_client_id(directory: Path, source: str) -> str:
    """Return the client id for a source, which is made at the first start and kept in the state
    directory. If the directory cannot be written, the id is for this run only, and a warning says
    so.
    """
    file = directory / f"mqtt-client-id-{source}"
    try:
        if kept := file.read_text("ascii").strip():
            return kept
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        return _unkept(source, error)
    made = _first(directory, source)
    fresh = file.with_suffix(".new")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(f"{made}\n", "ascii")
        fresh.replace(file)
    except OSError as error:
        return _unkept(source, error)
    return made


def _first(directory: Path, source: str) -> str:
    """Return a new id. With the database of a version up to 0.2.0 it is the id of that version,
    because its session at the broker may have messages.
    """
    if (directory / DATABASE_FILE).exists():
        origin = f"{socket.gethostname()}\n{directory.resolve()}\n{source}"
        return f"seb-console-{hashlib.sha256(origin.encode()).hexdigest()[:12]}"
    return _new()


def _new() -> str:
    return f"seb-console-{uuid4().hex[:12]}"


def _unkept(source: str, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or type(error).__name__
    _LOG.warning(
        "the client id cannot be kept in SEB_CONSOLE_STATE_DIR (%s), so what comes while this "
        "console restarts is lost; correct that, or set SEB_CONSOLE_SOURCE__%s__CLIENT_ID",
        reason,
        source.upper(),
        extra={"action": "client_id_not_kept", "source": source},
    )
    return _new()
