"""The limit of open files of this process, which also limits its connections."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

_MAX_FILES: Final = 65_536


def raise_open_files() -> int:
    """Raise the limit of open files as far as the system allows; return it. Never raises an error:
    a lower limit means fewer connections.
    """
    files = _MAX_FILES
    if sys.platform != "win32":
        import resource  # noqa: PLC0415  # Windows has none

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
        if soft not in (resource.RLIM_INFINITY, wanted):
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = files if soft == resource.RLIM_INFINITY else soft
    return files
