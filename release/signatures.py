"""Signatures of what is released, with a key of the caller's gpg: packages, sums, repositories.

Nothing here makes or reads a private key: gpg and its agent do, so that it may be on a token.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from release.interpreters import Unavailable


def sign_packages(folder: Path, key: str) -> list[Path]:
    """Sign each .rpm of the folder, in place; a .deb is signed by its repository.

    `key` is a key id or a fingerprint. Raises `Unavailable` without rpmsign or the key.
    """
    found = sorted(folder.glob("*.rpm"))
    if found:
        # rpm calls gpg2 by default, which some systems do not have.
        macros = {"_gpg_name": key, "__gpg": shutil.which("gpg") or "gpg"}
        defined = [word for name, value in macros.items() for word in ("-D", f"{name} {value}")]
        _run("rpmsign", *defined, "--addsign", *map(str, found))
    return found


def detached(path: Path, key: str) -> Path:
    """A signature of a file, as PATH.asc."""
    target = path.with_name(f"{path.name}.asc")
    _gpg(key, "--armor", "--detach-sign", "--output", str(target), str(path))
    return target


def inline(path: Path, target: Path, key: str) -> Path:
    """The text of a file as `target`, with its signature within."""
    _gpg(key, "--clear-sign", "--output", str(target), str(path))
    return target


def public_key(target: Path, key: str, *, armor: bool) -> Path:
    """The public half of the key, for those who install."""
    form = ["--armor"] if armor else []
    _run("gpg", "--batch", "--yes", *form, "--output", str(target), "--export", key)
    return target


def _gpg(key: str, *words: str) -> None:
    _run("gpg", "--batch", "--yes", "--local-user", key, *words)


def _run(*words: str) -> None:
    if not shutil.which(words[0]):
        raise Unavailable(f"not installed here: {words[0]}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Unavailable(f"{words[0]} ended with {done.returncode}: {last[:300]}")
