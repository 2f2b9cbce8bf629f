"""A Windows job: a program and everything it starts, which end together."""

from __future__ import annotations

import ctypes
import sys
import weakref
from ctypes import wintypes
from typing import Final

_EXTENDED_LIMITS: Final = 9
_KILL_ON_CLOSE: Final = 0x2000
_ACCESS: Final = 0x0901
"""The rights to set quotas of a process, to end it and to resume it."""

if sys.platform == "win32":

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = (
            ("times", ctypes.c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("working_set", ctypes.c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("classes", wintypes.DWORD * 2),
            ("counters", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        )

    class Job:
        """A job object: the system ends its processes when the bridge ends, even by force."""

        def __init__(self, pid: int) -> None:
            """Add a process that was started suspended, and let it run."""
            self._kernel = kernel = ctypes.WinDLL("kernel32")
            kernel.CreateJobObjectW.restype = kernel.OpenProcess.restype = wintypes.HANDLE
            self._handle = wintypes.HANDLE(kernel.CreateJobObjectW(None, None))
            weakref.finalize(self, kernel.CloseHandle, self._handle)
            self._limit(_KILL_ON_CLOSE)
            process = wintypes.HANDLE(kernel.OpenProcess(_ACCESS, False, pid))  # noqa: FBT003
            # Where it is refused, `Run.kill` ends the program alone.
            kernel.AssignProcessToJobObject(self._handle, process)
            ctypes.WinDLL("ntdll").NtResumeProcess(process)
            kernel.CloseHandle(process)

        def end(self) -> None:
            """End all processes in the job at once."""
            self._kernel.TerminateJobObject(self._handle, 1)

        def release(self) -> None:
            """Let the processes that are still in the job run on after it."""
            self._limit(0)

        def _limit(self, flags: int) -> None:
            limits = _Limits(flags=flags)
            self._kernel.SetInformationJobObject(
                self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )
