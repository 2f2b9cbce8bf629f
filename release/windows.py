"""The program for Windows: a .zip with its own Python, a service's settings and install scripts."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import Final

import pip

from release import interpreters, program, sbom
from release.interpreters import MINOR
from release.locks import Platform
from release.program import FILES

PLATFORM: Final = Platform(system="windows", machine="x86_64", python=MINOR)
_SHORT: Final = MINOR.replace(".", "")
_UNUSED_FILES: Final = ("_ctypes_test.pyd", "_tkinter.pyd", "tcl86t.dll", "tk86t.dll", "_test*.pyd")


def build(wheel: Path, wheels: list[Path], version: str, target: Path) -> Path:
    """The folder of the program in `target`: seb.exe runs where it was unpacked."""
    tree = interpreters.windows()
    python = target / "python"
    library = python / "Lib"
    shutil.copytree(tree / "lib", library)
    program.trim(library)
    for folder in library.glob("*.dist-info"):
        shutil.rmtree(folder)
    for pattern in _UNUSED_FILES:
        for path in library.glob(pattern):
            path.unlink()
    (python / "DLLs").mkdir()
    for path in [*library.glob("*.pyd"), *library.glob("*.dll")]:
        beside = python if path.name.startswith("vcruntime") else python / "DLLs"
        shutil.move(path, beside / path.name)
    for name in ("python.exe", f"python{_SHORT}.dll", "python3.dll"):
        if found := sorted(tree.glob(f"**/{name}")):
            shutil.copy(found[0], python / name)
    # Nothing but these folders is searched: no variable and no registry of the machine counts.
    lines = ("Lib", "DLLs", r"Lib\site-packages")
    (python / f"python{_SHORT}._pth").write_text("".join(f"{each}\r\n" for each in lines))
    program.install([*wheels, wheel], library / "site-packages")
    linux = interpreters.linux() / "bin" / f"python{MINOR}"
    program.compile_all(linux, library)  # bytecode is the same on every system
    (target / "seb.exe").write_bytes(launcher(wheel))
    for path in (FILES / "windows").iterdir():
        # PowerShell 5 and Notepad of old Windows want its ends of lines.
        text = path.read_text(encoding="utf-8").replace("\n", "\r\n")
        (target / path.name).write_text(text, encoding="utf-8", newline="")
    (target / "VERSION").write_text(f"{version}\r\n", newline="")
    for path in library.glob("LICENSE*"):
        shutil.copy(path, target / "LICENSE-python.txt")
    sbom.notices(wheels, target)
    return target


def launcher(wheel: Path) -> bytes:
    """seb.exe: pip's own launcher, which starts the python.exe beside it with what it carries."""
    stub = Path(pip.__path__[0], "_vendor", "distlib", "t64.exe").read_bytes()
    shebang = b"#!<launcher_dir>\\python\\python.exe -I -B -X utf8 -X faulthandler\r\n"
    carried = io.BytesIO()
    with zipfile.ZipFile(carried, "w") as archive:
        entry = zipfile.ZipInfo("__main__.py", (1980, 1, 1, 0, 0, 0))
        archive.writestr(entry, program.start_script(wheel))
    return stub + shebang + carried.getvalue()
