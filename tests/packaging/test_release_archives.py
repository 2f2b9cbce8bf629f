"""Archives of a release: the same files give the same bytes, whenever they are made."""

import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from release import archives


@pytest.fixture(autouse=True)
def _moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that every file gets."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def tree(folder: Path, *, order: list[str], mtime: int, umask: int) -> Path:
    """Some files, made in an order, at a time and with a umask that must not matter."""
    for name in order:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
        path.chmod((0o777 if name.startswith("bin/") else 0o666) & ~umask)
        os.utime(path, (mtime, mtime))
    return folder


@pytest.mark.parametrize("make", [archives.tar_gz, archives.zipped])
def test_the_same_files_give_the_same_bytes(make: object, tmp_path: Path) -> None:
    """Order of creation, time and umask of the builder are in no archive."""
    assert callable(make)
    one = tree(tmp_path / "one", order=["b", "bin/seb", "a/c"], mtime=1, umask=0o022)
    two = tree(tmp_path / "two", order=["a/c", "bin/seb", "b"], mtime=2_000_000_000, umask=0o077)
    made = [make(each, tmp_path / each.name / "x.out", root="seb-1") for each in (one, two)]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_what_an_archive_holds(tmp_path: Path) -> None:
    """Everything below one folder: of a tar root's own, programs executable and nothing else; of a
    zip the same names and bytes.
    """
    folder = tree(tmp_path / "one", order=["bin/seb", "note"], mtime=1, umask=0o077)
    archive = archives.tar_gz(folder, tmp_path / "x.tar.gz", root="seb-1")
    with tarfile.open(archive) as opened:
        members = [(each.name, each.mode, each.uid, each.uname, each.mtime) for each in opened]
    assert members == [
        ("seb-1/bin/seb", 0o755, 0, "root", 1700000000),
        ("seb-1/note", 0o644, 0, "root", 1700000000),
    ]
    with zipfile.ZipFile(archives.zipped(folder, tmp_path / "x.zip", root="seb-1")) as zipped:
        assert zipped.read("seb-1/bin/seb") == b"content of bin/seb"


def test_the_sums_are_those_of_the_files(tmp_path: Path) -> None:
    """As `sha256sum --check` reads them, without the file of the sums itself."""
    (tmp_path / "a").write_bytes(b"")
    archives.write_sums(tmp_path)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert archives.write_sums(tmp_path).read_text() == f"{empty}  a\n"
