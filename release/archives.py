"""Archives whose bytes depend on nothing but the files in them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path


def epoch() -> int:
    """The time that every file gets, in seconds since 1970; `make dist` takes the commit's."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def files(folder: Path) -> Iterator[Path]:
    """Every file and link below a folder, in an order that no file system changes."""
    yield from sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def mode(path: Path) -> int:
    """0755 for a program, 0644 for everything else: the umask of the builder does not count."""
    return 0o755 if path.lstat().st_mode & stat.S_IXUSR else 0o644


def normalise(folder: Path) -> None:
    """One time and one of two modes for every file, so that packages of it are the same."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else mode(path))
        os.utime(path, (epoch(), epoch()), follow_symlinks=False)


def tar_gz(folder: Path, target: Path, *, root: str) -> Path:
    """The folder as `target`, a .tar.gz in which everything is below `root`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in files(folder):
            entry = archive.gettarinfo(path, f"{root}/{path.relative_to(folder).as_posix()}")
            if entry.islnk():  # a second name of the same file on the builder's disk
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            entry.mtime, entry.mode = epoch(), mode(path)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            if entry.isreg():
                with path.open("rb") as stream:
                    archive.addfile(entry, stream)
            else:
                archive.addfile(entry)
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return target


def zipped(folder: Path, target: Path, *, root: str) -> Path:
    """The folder as `target`, a .zip in which everything is below `root` ("" for no folder)."""
    moment = time.gmtime(max(epoch(), 315532800))[:6]  # a zip knows no time before 1980
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in files(folder):
            name = (Path(root) / path.relative_to(folder)).as_posix()
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (stat.S_IFREG | mode(path)) << 16
            archive.writestr(entry, path.read_bytes())
    return target


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(folder: Path) -> Path:
    """SHA256SUMS of everything in the folder, for `sha256sum --check`."""
    target = folder / "SHA256SUMS"
    target.unlink(missing_ok=True)
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files(folder)]
    target.write_text("".join(lines), encoding="utf-8")
    return target
