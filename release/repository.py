"""`python -m release.repository`: an apt and a yum repository of the packages in `dist/`.

It is a folder of plain files that any web server serves. With SEB_RELEASE_KEY both are signed; the
packages of older releases that are in the folder already stay.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from release import signatures
from release.interpreters import Unavailable

ROOT: Final = Path(__file__).parent.parent
_SUITE: Final = "stable"


def lay_out(dist: Path, target: Path, key: str | None) -> list[str]:
    """Both repositories in `target`; what a person writes on a VM to use them.

    Raises `Unavailable` if a tool is missing.
    """
    target.mkdir(parents=True, exist_ok=True)
    _apt(dist, target / "apt", key)
    _yum(dist, target / "yum", key)
    if key:
        signatures.public_key(target / "seb.asc", key, armor=True)
        signatures.public_key(target / "seb.gpg", key, armor=False)
    return _advice(signed=bool(key))


def _apt(dist: Path, target: Path, key: str | None) -> None:
    """pool/ with every .deb, and dists/stable with what apt reads."""
    pool = target / "pool"
    folder = target / "dists" / _SUITE
    packages = folder / "main" / "binary-amd64"
    for each in (pool, packages):
        each.mkdir(parents=True, exist_ok=True)
    for path in sorted(dist.glob("*.deb")):
        shutil.copy(path, pool)
    listed = _out("apt-ftparchive", "packages", "pool", where=target)
    (packages / "Packages").write_text(listed, encoding="utf-8")
    names = {"Origin": "scheduled-events-bridge", "Suite": _SUITE, "Codename": _SUITE,
             "Components": "main", "Architectures": "amd64"}  # fmt: skip
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in names.items()]
    for old in ("Release", "InRelease", "Release.gpg"):
        (folder / old).unlink(missing_ok=True)
    release = _out("apt-ftparchive", *options, "release", ".", where=folder)
    (folder / "Release").write_text(release, encoding="utf-8")
    if key:
        signatures.inline(folder / "Release", folder / "InRelease", key)


def _yum(dist: Path, target: Path, key: str | None) -> None:
    """Every .rpm, and repodata/ with what dnf reads."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(dist.glob("*.rpm")):
        shutil.copy(path, target)
    _out("createrepo_c", "--quiet", "--general-compress-type=gz", ".", where=target)
    if key:
        signatures.detached(target / "repodata" / "repomd.xml", key)


def _advice(*, signed: bool) -> list[str]:
    trust = "signed-by=/etc/apt/keyrings/seb.gpg" if signed else "trusted=yes"
    return [
        "on Debian and Ubuntu, in /etc/apt/sources.list.d/seb.list:",
        f"  deb [{trust}] https://packages.example/seb/apt {_SUITE} main",
        "on RHEL and Azure Linux, in /etc/yum.repos.d/seb.repo:",
        "  [seb]",
        "  name=seb",
        "  baseurl=https://packages.example/seb/yum",
        *(["  gpgcheck=1", "  repo_gpgcheck=1", "  gpgkey=https://packages.example/seb/seb.asc"]
          if signed else ["  gpgcheck=0"]),
    ]  # fmt: skip


def _out(*words: str, where: Path) -> str:
    if not shutil.which(words[0]):
        package = {"apt-ftparchive": "apt-utils", "createrepo_c": "createrepo-c"}[words[0]]
        raise Unavailable(f"not installed here: {words[0]} (the package {package})")
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    """Lay out the repositories of dist/; 1 if a tool is missing."""
    parser = argparse.ArgumentParser(prog="python -m release.repository", description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--out", type=Path, default=ROOT / "repository")
    chosen = parser.parse_args()
    key = os.environ.get("SEB_RELEASE_KEY")
    try:
        lines = lay_out(chosen.dist, chosen.out, key)
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1
    if not key:
        print("NOT SIGNED: SEB_RELEASE_KEY names no key", file=sys.stderr)
    print("\n".join([f"{chosen.out}: any web server can serve it, for example as", *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
