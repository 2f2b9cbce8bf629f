"""Runs `seb` on a wall clock that is wrong by the seconds, a double, that a file holds.

Everything in the process reads it, APScheduler and logging included; the monotonic clock is right.
"""

import datetime as dt
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

real_time, real_time_ns = time.time, time.time_ns
Real = dt.datetime


def _wrong_by() -> float:
    seconds: float = struct.unpack_from("d", FILE, 0)[0]
    return seconds


class _OfAnyKind(type):
    """What C code makes is a datetime too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Real)


class WrongDatetime(Real, metaclass=_OfAnyKind):
    """A datetime whose `now` is wrong."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return cls.fromtimestamp(real_time() + _wrong_by(), tz)

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(dt.UTC).replace(tzinfo=None)


def _wrong_time() -> float:
    return real_time() + _wrong_by()


def _wrong_time_ns() -> int:
    return real_time_ns() + round(_wrong_by() * 1e9)


def _deceive() -> None:
    """From here on, whoever imports `datetime` or asks `time` is deceived."""
    WrongDatetime.__name__ = WrongDatetime.__qualname__ = "datetime"
    WrongDatetime.__module__ = "datetime"
    dt.datetime = WrongDatetime  # type: ignore[misc]
    time.time = _wrong_time
    time.time_ns = _wrong_time_ns


def _open() -> mmap.mmap:
    with Path(os.environ.pop("CLOCK_FAULT")).open("r+b") as file:
        return mmap.mmap(file.fileno(), 8)


if __name__ == "__main__":
    FILE = _open()
    _deceive()
    sys.path[:] = [each for each in sys.path if each != str(Path(__file__).parent)]
    from bridge.cli import main

    sys.argv[0] = "seb"
    main()
