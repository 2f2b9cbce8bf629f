"""Differences between operating systems: boot id, paths, private files, signals, systemd."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_APP: Final = "scheduled-events-bridge"
_SOCKET_PATH_BYTES: Final = 100
"""sun_path has 108 bytes on Linux, including its end."""
_LINUX_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# The kernel counts boots there; kubelet tells the boots of a Windows node apart by the same value.
_WINDOWS_BOOT_KEY: Final = (
    r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
)


def is_windows() -> bool:
    """Check whether this is Windows."""
    return sys.platform == "win32"


def boot_id() -> str | None:
    """Return the boot id, the same until the next boot; None if the system does not provide it."""
    if is_windows():
        return _windows_boot_id()
    try:
        return _LINUX_BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def suspended() -> float:
    """Return the seconds since the boot during which CLOCK_MONOTONIC stood still; 0.0 if it never
    does.
    """
    readings = [0.0]
    if sys.platform == "linux":
        # The process may be put aside between the two clocks: the least difference is the true one.
        readings = [_boot_time_ahead() for _ in range(3)]
    return max(0.0, min(readings))


def default_state_dir() -> Path:
    """Return the store's directory unless SEB_STATE_DIR is set: on the OS disk, which a redeploy
    keeps.
    """
    given = os.environ.get("STATE_DIRECTORY")  # systemd's StateDirectory=
    if given:
        return Path(given.split(":", maxsplit=1)[0])
    if is_windows():
        return Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData")) / _APP
    if os.access("/var/lib", os.W_OK):
        return Path("/var/lib") / _APP
    import platformdirs  # noqa: PLC0415  # a service has its directory, and does without

    return Path(platformdirs.user_state_dir(_APP, appauthor=False))


def make_private(path: Path) -> None:
    """Make a file readable only by its owner. On Windows the directory decides, made with mode
    0o700.
    """
    if not is_windows():
        path.chmod(0o700 if path.is_dir() else 0o600)


def create_private(path: Path) -> int:
    """Return a descriptor of a new file that only this account can read. Raises
    `FileExistsError`.
    """
    if sys.platform == "win32":
        descriptor = _create_private_on_windows(path)
    else:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    return descriptor


def sync_directory(path: Path) -> None:
    """Make a rename or a new file in the directory durable, if the system needs that."""
    if is_windows():  # NTFS journals names itself, and a directory cannot be opened for this
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _windows_boot_id() -> str | None:
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415  # exists on Windows only

        with suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _WINDOWS_BOOT_KEY) as key:
            return f"boot-{winreg.QueryValueEx(key, 'BootId')[0]}"
    return None


def occupy_closed_streams() -> None:
    """Open closed standard descriptors on the null device; otherwise a store could get their
    number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one. Child processes get it as well.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003  # Python's own
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def reader_has_gone(error: Exception) -> bool:
    """Check whether a write failed because the reader of standard output is gone (on Windows)."""
    if sys.platform == "win32" and sys.stdout is not None and isinstance(error, OSError):
        # Of the C library: an error about a file has its name, one of the system its own number.
        number: int | None = getattr(error, "winerror", None)
        if error.errno == errno.EINVAL and error.filename is None and number is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return True
    return False


def control_address(directory: Path) -> str | None:
    """Return the address of the local socket; None lets `multiprocessing` choose one."""
    path = directory / "control.sock"
    if is_windows() or len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        return None
    path.unlink(missing_ok=True)
    return str(path)


def wake_listener(address: str) -> None:
    """Wake the thread that waits in `accept` of `multiprocessing` at this address. Never waits for
    it. Raises `OSError`, as when connections wait already, which wake it too.
    """
    if sys.platform == "win32":
        from multiprocessing.connection import Client  # noqa: PLC0415  # most commands do without

        Client(address).close()
    else:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(0)
            caller.connect(address)


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGTERM and SIGINT, and on Ctrl-Break, which is how Windows services end."""
    for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
        if number := getattr(signal, name, None):
            signal.signal(number, lambda *_: stop())


def notify(state: str, seconds: float = 0.0) -> bool:
    """Send lines of sd_notify(3) to the service manager, if there is one; return whether it
    accepted them. It never raises, and waits at most so many seconds for a manager that does not
    respond.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    family = getattr(socket, "AF_UNIX", None)  # Windows' Python has none
    if family is None or not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # systemd's way to write Linux' abstract names
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(seconds)
        sender.sendto(state.encode(), address)
        return True
    return False


def watchdog_seconds() -> float | None:
    """Return the service manager's watchdog time in seconds; None without one for this process."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID") or str(os.getpid())
    if not microseconds.isdecimal() or int(microseconds) == 0 or meant != str(os.getpid()):
        return None
    return int(microseconds) / 1_000_000


def is_volatile(path: Path) -> bool:
    """Check whether a path is in memory or on a disk that Azure may take away, as far as that is
    known.
    """
    if is_windows():
        return path.drive.upper() == "D:"  # Azure: the temporary disk of Windows VMs
    best = 0
    kind = ""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        resolved = path.resolve()
    except OSError:
        return False
    for line in mounts.splitlines():
        _, point, each, *_ = line.split(" ")
        if resolved.is_relative_to(point) and len(point) >= best:
            best = len(point)
            kind = each
            resource_disk = point in ("/mnt", "/mnt/resource")  # Azure: where agents mount it
    return kind in ("tmpfs", "ramfs") or (best > 1 and resource_disk)


if sys.platform == "win32":

    def _create_private_on_windows(path: Path) -> int:
        """Return a descriptor of a new file with an access list of one entry, and none from its
        directory (SDDL: D:P).
        """
        import ctypes  # noqa: PLC0415  # only for this
        import msvcrt  # noqa: PLC0415
        from ctypes import wintypes  # noqa: PLC0415

        class SecurityAttributes(ctypes.Structure):
            _fields_ = (
                ("length", wintypes.DWORD),
                ("descriptor", wintypes.LPVOID),
                ("inherited_by_processes", wintypes.BOOL),
            )

        create = ctypes.WinDLL("kernel32", use_last_error=True).CreateFileW
        create.restype = wintypes.HANDLE
        create.argtypes = (
            wintypes.LPCWSTR,
            wintypes.DWORD,
            wintypes.DWORD,
            wintypes.LPVOID,
            wintypes.DWORD,
            wintypes.DWORD,
            wintypes.HANDLE,
        )
        advapi = ctypes.WinDLL("advapi32", use_last_error=True)
        descriptor = wintypes.LPVOID()  # never freed: a few bytes, once in a process
        if not advapi.ConvertStringSecurityDescriptorToSecurityDescriptorW(
            f"D:P(A;;FA;;;{_account()})", 1, ctypes.byref(descriptor), None
        ):
            raise ctypes.WinError(ctypes.get_last_error())
        attributes = SecurityAttributes(ctypes.sizeof(SecurityAttributes), descriptor, 0)
        generic_write = 0x4000_0000
        create_new = 1
        handle = create(str(path), generic_write, 0, ctypes.byref(attributes), create_new, 0, None)
        if handle == wintypes.HANDLE(-1).value:
            raise ctypes.WinError(ctypes.get_last_error())
        return msvcrt.open_osfhandle(handle, os.O_WRONLY)

    def _account() -> str:
        import ctypes  # noqa: PLC0415  # only for this
        from ctypes import wintypes  # noqa: PLC0415

        advapi = ctypes.WinDLL("advapi32", use_last_error=True)
        advapi.OpenProcessToken.argtypes = (wintypes.HANDLE, wintypes.DWORD, wintypes.LPVOID)
        advapi.ConvertSidToStringSidW.argtypes = (wintypes.LPVOID, wintypes.LPVOID)
        this_process = wintypes.HANDLE(-1)
        token_query = 8
        token_user = 1
        token = wintypes.HANDLE()
        size = wintypes.DWORD()
        text = wintypes.LPWSTR()
        found = advapi.OpenProcessToken(this_process, token_query, ctypes.byref(token))
        if found:
            advapi.GetTokenInformation(token, token_user, None, 0, ctypes.byref(size))
            user = ctypes.create_string_buffer(size.value)
            found = advapi.GetTokenInformation(token, token_user, user, size, ctypes.byref(size))
        if found:  # the structure begins with a pointer to the identifier
            sid = ctypes.cast(user, ctypes.POINTER(ctypes.c_void_p))[0]
            found = advapi.ConvertSidToStringSidW(sid, ctypes.byref(text))
        if not found:
            raise ctypes.WinError(ctypes.get_last_error())
        return str(text.value)


if sys.platform == "linux":

    def _boot_time_ahead() -> float:
        monotonic = time.clock_gettime(time.CLOCK_MONOTONIC)
        return time.clock_gettime(time.CLOCK_BOOTTIME) - monotonic
