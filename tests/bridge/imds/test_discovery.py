"""Where IMDS is found: on Windows the address can come from DHCP."""

import os
import struct
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.imds.discovery import endpoints, parse_windows_options

ADDRESS = bytes([10, 0, 81, 16])
EXPIRY = 0x6543_2100


def option(code: int, value: bytes, *, vendors: int = 0) -> bytes:
    """Return an entry of DhcpInterfaceOptions as Windows writes it."""
    padding = b"\0" * (-len(value) % 4)
    return struct.pack("<IIIII", code, 0, len(value), vendors, EXPIRY) + value + padding


def lease(root: Path, path: str, text: str, *, age: int = 0) -> None:
    """Write a lease file that is `age` seconds older than the newest."""
    if sys.platform == "win32":
        pytest.skip("Windows has its leases in the registry")
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (1_700_000_000 - age,) * 2)


def test_windows_keeps_the_address_among_other_options() -> None:
    """The address is found among entries of any length, also empty ones."""
    blob = b"".join(
        [option(15, b"example.net"), option(121, b""), option(6, bytes(8)), option(245, ADDRESS)]
    )
    assert parse_windows_options(blob) == IPv4Address("10.0.81.16")


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xf5",
        option(15, b"example.net"),
        option(245, b""),
        option(245, ADDRESS + ADDRESS),
        option(245, ADDRESS, vendors=1),
        option(245, ADDRESS)[:-1],
        option(43, option(245, ADDRESS)),
    ],
)
def test_windows_may_have_no_such_option(blob: bytes) -> None:
    """An entry of another option, or one that is cut off or has another length, gives no
    address.
    """
    assert parse_windows_options(blob) is None


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_registry_value_is_survived(blob: bytes) -> None:
    """Any registry value is read without an error and without a loop."""
    parse_windows_options(blob)


@pytest.mark.parametrize(
    "line",
    [
        "  option unknown-245 a:0:51:10;",
        "  option unknown-245 0a:00:51:10;",
        "OPTION_245=0a005110",
        "OPTION_245=0A005110",
    ],
)
def test_a_lease_names_the_endpoint(tmp_path: Path, line: str) -> None:
    """The address is found in leases of dhclient, systemd-networkd and NetworkManager."""
    lease(tmp_path, "var/lib/dhcp/dhclient.eth0.leases", f"lease {{\n{line}\n}}\n")
    assert endpoints(tmp_path) == ["http://10.0.81.16"]


@pytest.mark.parametrize(
    "line",
    [
        "option unknown-244 0a:00:51:10;",
        "option unknown-245 0a:00:51;",
        "option unknown-245 0a:00:51:10:11;",
        "OPTION_245=0a00511",
        "OPTION_245=0a0051100",
        "OPTION_245=",
        'option unknown-245 "abc";',
        "option unknown-245 10.0.81.16;",
    ],
)
def test_a_lease_without_an_address_names_nothing(tmp_path: Path, line: str) -> None:
    """A value of another length than four bytes gives no address."""
    lease(tmp_path, "run/systemd/netif/leases/2", f"ADDRESS=10.0.0.4\n{line}\n")
    assert endpoints(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "expected"), [('"dX8a"', "100.88.56.97"), ('"\\"\\\\8a"', "34.92.56.97")]
)
def test_a_lease_may_quote_its_bytes(tmp_path: Path, text: str, expected: str) -> None:
    """An address that dhclient wrote as quoted text is read, which it does if all bytes are
    printable.
    """
    lease(tmp_path, "var/lib/dhclient/dhclient--eth0.lease", f"  option unknown-245 {text};\n")
    assert endpoints(tmp_path) == [f"http://{expected}"]


def test_the_newest_lease_comes_first(tmp_path: Path) -> None:
    """The newest file comes first, and the last lease in a file; no address occurs twice."""
    lease(
        tmp_path,
        "var/lib/dhclient/old.leases",
        "option unknown-245 1:1:1:1;\noption unknown-245 2:2:2:2;\n",
        age=60,
    )
    lease(tmp_path, "var/lib/NetworkManager/internal-1-eth0.lease", "OPTION_245=02020202\n")
    assert endpoints(tmp_path) == ["http://2.2.2.2", "http://1.1.1.1"]


def test_a_machine_without_leases_names_nothing(tmp_path: Path) -> None:
    """A machine without leases, or with leases that are not text, gives no address."""
    (tmp_path / "var/lib/dhcp/dir.leases").mkdir(parents=True)
    (tmp_path / "var/lib/dhcp/x.leases").write_bytes(bytes(range(256)))
    assert endpoints(tmp_path) == []
