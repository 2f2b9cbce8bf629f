"""The program for Linux: a folder with its own Python that runs where it was unpacked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from release import archives, interpreters, program, sbom
from release.interpreters import GLIBC, MINOR, Unavailable
from release.locks import Platform
from release.program import FILES

PLATFORM: Final = Platform(system="linux", machine="x86_64", python=MINOR)


def build(wheel: Path, wheels: list[Path], target: Path) -> Path:
    """The folder of the program in `target`: bin/seb runs where it was unpacked.

    Raises `Unavailable` if it would need a newer glibc than it promises.
    """
    shutil.copytree(interpreters.linux(), target, symlinks=True)
    for part in ("include", "share", "lib/pkgconfig"):
        shutil.rmtree(target / part, ignore_errors=True)
    for path in (target / "lib").glob("libpython*"):
        path.unlink()
    for path in (target / "bin").iterdir():
        if path.name != f"python{MINOR}":
            path.unlink()
    library = target / "lib" / f"python{MINOR}"
    program.trim(library)
    program.install([*wheels, wheel], library / "site-packages")
    (target / "lib" / "seb.py").write_text(program.start_script(wheel), encoding="utf-8")
    program.script(FILES / "linux" / "seb.sh", target / "bin" / "seb", python=f"python{MINOR}")
    program.compile_all(target / "bin" / f"python{MINOR}", library)
    sbom.notices(wheels, target)
    needed = program.glibc_needed(target)
    if needed > GLIBC:
        raise Unavailable(f"the Linux program needs glibc {needed}, more than {GLIBC}")
    archives.normalise(target)
    return target
