"""The common time of several consoles on one PostgreSQL. Each compares times that others have
written, and the clock of one machine may be wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, text

_LOG: Final = logging.getLogger("console")
_SMALL_SECONDS: Final = 5.0
"""Clocks may differ by so many seconds without a warning."""
_EXACT_SECONDS: Final = 0.5
"""Differences below this, in seconds, do not count: they may come from the time that the query
takes.
"""
MAX_DIFFERENCE_SECONDS: Final = 30.0
"""How far the clocks of two consoles on one database may differ, and more."""
_NOW: Final = text("SELECT extract(epoch FROM clock_timestamp())")


class CommonClock:
    """The database's clock, continued by this machine's clock between two comparisons. May be
    called from any thread.
    """

    def __init__(self, own: Callable[[], float] = time.time, *, is_compared: bool = True) -> None:
        """`own` is this machine's clock, in seconds since 1970. Without `is_compared` it is used as
        it is.
        """
        self.own: Final = own
        self._is_compared = is_compared
        self._offset = 0.0

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        return self.own() + self._offset

    def compare(self, connection: Connection) -> None:
        """Read the database's clock; SQLite has none. Raises SQLAlchemy's errors."""
        if not self._is_compared or connection.dialect.name != "postgresql":
            return
        before = self.own()
        database_time = float(connection.execute(_NOW).scalar_one())
        offset = database_time - (before + self.own()) / 2
        if abs(offset - self._offset) <= _EXACT_SECONDS:
            return
        is_new = abs(offset - self._offset) > _SMALL_SECONDS
        self._offset = offset
        if is_new and abs(offset) > _SMALL_SECONDS:
            _LOG.warning(
                "this machine's clock differs from the database's by %.0f s, which counts here; "
                "correct the wrong one",
                offset,
                extra={"action": "clock_differs"},
            )
