"""python3.dll for Windows: it leads extensions of the stable ABI on to python3NN.dll.

The ready-made Python comes without it, and cryptography is such an extension. Python's own
python3.dll is the same: nothing but a list of names, each with the place where it really is.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ENTRY: Final = "int __stdcall DllMainCRTStartup(void *m, unsigned long r, void *p) { return 1; }\n"
_SHORT_IMPORT: Final = b"\0\0\xff\xff"


def exports(library: bytes) -> Iterator[tuple[str, bool]]:
    """Each name of an import library (python3.lib), and whether it is data.

    An archive of `ar` whose members are short import objects (PE format, "Import Library Format").
    """
    at = 8
    while at < len(library):
        size = int(library[at + 48 : at + 58])
        member = library[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
        if member.startswith(_SHORT_IMPORT):
            (kind,) = struct.unpack_from("<H", member, 18)
            yield member[20:].split(b"\0")[0].decode(), kind & 3 != 0


def build(library: Path, dll: str, target: Path, zig: Path) -> None:
    """Write python3.dll, which forwards every name of `library` to `dll` (such as python313)."""
    definition, source = target.with_suffix(".def"), target.with_suffix(".c")
    lines = [
        f"{name} = {dll}.{name}{' DATA' if data else ''}\n"
        for name, data in sorted(set(exports(library.read_bytes())))
    ]
    definition.write_text("".join([f"LIBRARY {target.name}\n", "EXPORTS\n", *lines]))
    source.write_text(_ENTRY)
    subprocess.run(
        [*(str(zig / "zig"), "cc", "-target", "x86_64-windows-gnu", "-shared", "-nostdlib", "-s"),
         *("-o", str(target), str(source), str(definition))],
        check=True,
        env={"ZIG_GLOBAL_CACHE_DIR": str(target.parent / "zig"), "PATH": str(zig)},
    )  # fmt: skip
    target.write_bytes(_timeless(target.read_bytes()))
    for path in (definition, source, target.with_suffix(".lib")):
        path.unlink(missing_ok=True)


def _timeless(image: bytes) -> bytes:
    """The image without the time at which it was linked (COFF header, TimeDateStamp)."""
    (header,) = struct.unpack_from("<I", image, 0x3C)
    return image[: header + 8] + bytes(4) + image[header + 12 :]
