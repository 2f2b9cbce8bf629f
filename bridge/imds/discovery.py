"""The metadata service's address outside a VNet, from DHCP option 245 on the machine."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

_OPTION: Final = 245
_ADDRESS_BYTES: Final = 4
_HEADER: Final = struct.Struct("<I4xII4x")
_LEASE_GLOBS: Final = (
    "var/lib/dhcp/*.leases",
    "var/lib/dhclient/*.lease*",
    "var/lib/NetworkManager/*.lease",
    "run/systemd/netif/leases/*",
)
# dhclient writes `option unknown-245 a8:3f:81:10;`, or the four characters in quotes where each
# can be printed; systemd-networkd and NetworkManager write `OPTION_245=a83f8110`.
_LEASE_LINE: Final = re.compile(
    r"(?:unknown-245|option-245|OPTION_245)(?:\s+|=)"
    r"(?:((?:[0-9a-f]{1,2}:){3}[0-9a-f]{1,2})|([0-9a-f]{8})|\"((?:\\.|[^\"\\]){4})\")(?![0-9a-f:])",
    re.ASCII | re.IGNORECASE,
)
_WINDOWS_INTERFACES: Final = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"


def endpoints(root: Path = Path("/")) -> Sequence[str]:
    """Return base URLs of the endpoints in the machine's DHCP leases, the newest lease first."""
    found = _windows_options() if sys.platform == "win32" else _lease_options(root)
    return list(dict.fromkeys(f"http://{address}" for address in found))


def parse_windows_options(blob: bytes) -> IPv4Address | None:
    """Return option 245 from the registry's DhcpInterfaceOptions: entries of five little-endian
    words (code, ?, length, vendor's own, expiry) and the padded value; known from several tools.
    """
    offset = 0
    while offset + _HEADER.size <= len(blob):
        code, length, vendors = _HEADER.unpack_from(blob, offset)
        offset += _HEADER.size
        value = blob[offset : offset + length]
        if (code, vendors, len(value)) == (_OPTION, 0, _ADDRESS_BYTES):
            return IPv4Address(value)
        offset += length + (-length % 4)
    return None


def _lease_options(root: Path) -> Iterator[IPv4Address]:
    files: list[tuple[float, Path]] = []
    for pattern in _LEASE_GLOBS:
        with suppress(OSError):
            files += [(path.stat().st_mtime, path) for path in root.glob(pattern)]
    for _, path in sorted(files, reverse=True):
        with suppress(OSError):
            # A lease file grows at its end: the last entry is the current one.
            yield from reversed(list(_addresses(path.read_text(errors="replace"))))


def _addresses(text: str) -> Iterable[IPv4Address]:
    for pairs, digits, quoted in _LEASE_LINE.findall(text):
        if quoted:
            value = re.sub(r"\\(.)", r"\1", quoted).encode("latin-1", "replace")
        elif digits:
            value = bytes.fromhex(digits)
        else:
            value = bytes(int(pair, 16) for pair in pairs.split(":"))
        yield IPv4Address(value)


def _windows_options() -> Iterator[IPv4Address]:
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415  # exists on Windows only

        root = winreg.HKEY_LOCAL_MACHINE
        with suppress(OSError), winreg.OpenKey(root, _WINDOWS_INTERFACES) as interfaces:
            for index in range(winreg.QueryInfoKey(interfaces)[0]):
                name = winreg.EnumKey(interfaces, index)
                with suppress(OSError), winreg.OpenKey(interfaces, name) as interface:
                    blob, _ = winreg.QueryValueEx(interface, "DhcpInterfaceOptions")
                    address = parse_windows_options(blob) if isinstance(blob, bytes) else None
                    if address is not None:
                        yield address
    yield from ()
