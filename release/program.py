"""The self-contained program: one folder with its own Python, the wheels and the command `seb`."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from release import archives

FILES: Final = Path(__file__).parent / "files"
_UNUSED: Final = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "turtle.py",
    "ensurepip",
    "pip",
    "lib2to3",
    "venv",
    "pydoc_data",
    "__pycache__",
    "_pyrepl",
    "curses",
    "dbm",
)
"""Parts of Python's library that no service needs."""


def trim(library: Path) -> None:
    """Take out of a standard library what the program does not use."""
    for path in sorted(library.rglob("*"), reverse=True):
        below = path.relative_to(library)
        known = below.parts[0] if below.parts else ""
        if known in _UNUSED or path.name == "__pycache__" or re.match(r"(pip-|config-3)", known):
            _remove(path)


def install(wheels: Iterable[Path], target: Path) -> None:
    """Unpack wheels, as an installer would where there is nothing to choose.

    A wheel is a zip; none of ours puts files elsewhere than below its own root.
    """
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                top, _, below = name.partition("/")
                if top.endswith(".data") and not below.startswith(("purelib/", "platlib/")):
                    continue  # scripts and headers: the program has a command of its own
                archive.extract(name, target)


def entry_point(wheel: Path) -> tuple[str, str]:
    """Module and function of the command `seb`, by the wheel's own word."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/entry_points.txt"))
        points = configparser.ConfigParser()
        points.read_string(archive.read(name).decode())
    module, _, function = points["console_scripts"]["seb"].partition(":")
    return module, function


def start_script(wheel: Path) -> str:
    """What Python runs as `seb`."""
    module, function = entry_point(wheel)
    return f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def script(source: Path, target: Path, *, python: str, home: str = "") -> None:
    """A script of ours, with the name of its Python and the folder of its program filled in."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text(encoding="utf-8").replace("@PYTHON@", python)
    target.write_text(text.replace("@HOME@", home), encoding="utf-8")
    target.chmod(0o755)


def compile_all(python: Path, folder: Path) -> None:
    """Bytecode beside the code, so that a start costs no more where nobody may write.

    It never looks at the code's time or content again: the folder is a whole. The same hash seed
    keeps sets in one order.
    """
    call = [
        *(str(python), "-m", "compileall", "-q", "-f", "-j", "1"),
        *("--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", "/seb", str(folder)),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(call, check=True, env=environment, stdout=subprocess.DEVNULL)


def glibc_needed(folder: Path) -> tuple[int, int]:
    """The oldest glibc that everything in the folder starts with, as (2, 28).

    A program names the versions of the symbols that it binds as `GLIBC_2.28`, in its own bytes.
    """
    needed = (2, 0)
    for path in archives.files(folder):
        with path.open("rb") as stream:
            if stream.read(4) == b"\x7fELF":
                found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", stream.read())
                needed = max([needed, *((int(major), int(minor)) for major, minor in found)])
    return needed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
