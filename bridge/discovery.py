"""Where the metadata service is for a VM outside a virtual network: DHCP option 245 says.

It only reads what the DHCP client left on the machine; it never asks the network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

_OPTION: Final = 245
_LEASE_GLOBS: Final = (
    "var/lib/dhcp/*.leases",
    "var/lib/dhclient/*.lease*",
    "var/lib/NetworkManager/*.lease",
    "run/systemd/netif/leases/*",
)
# dhclient writes `option unknown-245 a8:3f:81:10;`, systemd-networkd `OPTION_245=a83f8110`.
_LEASE_LINE: Final = re.compile(
    r"(?:unknown-245|option-245|OPTION_245)[\s=\"]+((?:[0-9a-fA-F]{1,2}:){3}[0-9a-fA-F]{1,2}"
    r"|[0-9a-fA-F]{8})\b"
)
_WINDOWS_INTERFACES: Final = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"


def endpoints(root: Path = Path("/")) -> Sequence[str]:
    """Base URLs of the endpoints that the machine's DHCP leases name, newest lease first."""
    found = _windows_options() if sys.platform == "win32" else _lease_options(root)
    return list(dict.fromkeys(f"http://{address}" for address in found))


def parse_windows_options(blob: bytes) -> IPv4Address | None:
    """Option 245 from the registry's DhcpInterfaceOptions: entries of five little-endian words
    (code, unknown, length, unknown, expiry) and the value, padded to four bytes.
    """
    place = 0
    while place + 20 <= len(blob):
        code = int.from_bytes(blob[place : place + 4], "little")
        length = int.from_bytes(blob[place + 8 : place + 12], "little")
        value = blob[place + 20 : place + 20 + length]
        if code == _OPTION and len(value) == 4:  # noqa: PLR2004
            return IPv4Address(value)
        place += 20 + length + (-length % 4)
    return None


def _lease_options(root: Path) -> Iterator[IPv4Address]:
    files: list[tuple[float, Path]] = []
    for pattern in _LEASE_GLOBS:
        with suppress(OSError):
            files += [(path.stat().st_mtime, path) for path in root.glob(pattern)]
    for _, path in sorted(files, reverse=True):
        with suppress(OSError):
            # A lease file grows at its end: the last mention is the one in force.
            yield from reversed(list(_addresses(path.read_text(errors="replace"))))


def _addresses(text: str) -> Iterable[IPv4Address]:
    for match in _LEASE_LINE.finditer(text):
        digits = match[1].split(":") if ":" in match[1] else re.findall("..", match[1])
        yield IPv4Address(bytes(int(pair, 16) for pair in digits))


def _windows_options() -> Iterator[IPv4Address]:
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415  # exists on Windows only

        root = winreg.HKEY_LOCAL_MACHINE
        with suppress(OSError), winreg.OpenKey(root, _WINDOWS_INTERFACES) as interfaces:
            for place in range(winreg.QueryInfoKey(interfaces)[0]):
                name = winreg.EnumKey(interfaces, place)
                with suppress(OSError), winreg.OpenKey(interfaces, name) as interface:
                    blob, _ = winreg.QueryValueEx(interface, "DhcpInterfaceOptions")
                    if address := parse_windows_options(blob):
                        yield address
    yield from ()
