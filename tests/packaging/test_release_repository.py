"""Signed packages and the repositories of `make repository`, read by apt, gpg and rpm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release import interpreters, repository, signatures

KEY = "packages@example.invalid"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="packages for Linux")


def need(*names: str) -> None:
    """Skip the test where a program is missing."""
    if missing := [each for each in names if not shutil.which(each)]:
        pytest.skip(f"needs {', '.join(missing)}; make dist-tools installs them")


def run(*words: str) -> str:
    """What a program writes; it ends with 0."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def key(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A key in a keyring of its own."""
    need("gpg")
    home = tmp_path_factory.mktemp("g")
    home.chmod(0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    made = ("--quick-generate-key", KEY, "rsa3072", "sign", "never")
    run("gpg", "--batch", "--passphrase", "", *made)
    return KEY


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with a small .deb in it."""
    need("dpkg-deb")
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        "Package: scheduled-events-bridge\nVersion: 1.0-1\nArchitecture: amd64\n"
        "Maintainer: x <x@example.invalid>\nDescription: x\n"
    )
    folder = tmp_path / "dist"
    folder.mkdir()
    run("dpkg-deb", "--build", str(root), str(folder / "scheduled-events-bridge_1.0-1_amd64.deb"))
    return folder


def apt_versions(home: Path, target: Path, options: str) -> str:
    """What an apt with no other source knows of the package; it checks the signature."""
    for each in ("lists/partial", "cache/archives/partial", "parts"):
        (home / each).mkdir(parents=True, exist_ok=True)
    (home / "list").write_text(f"deb [{options}] file:{target}/apt stable main\n")
    (home / "status").touch()
    places = {
        "Dir::Etc::sourcelist": home / "list",
        "Dir::Etc::sourceparts": home / "parts",
        "Dir::State::lists": home / "lists",
        "Dir::State::status": home / "status",
        "Dir::Cache": home / "cache",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
    }
    config = [word for name, value in places.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", *config, "update")
    return run("apt-cache", *config, "madison", "scheduled-events-bridge")


def test_apt_takes_a_signed_repository(key: str, dist: Path, tmp_path: Path) -> None:
    """With the key that lies beside it; the yum repository has its signature too."""
    need("apt-ftparchive", "createrepo_c", "apt-get")
    target = tmp_path / "repository"
    advice = repository.lay_out(dist, target, key)
    assert any("signed-by" in line for line in advice)
    said = apt_versions(tmp_path / "apt", target, f"signed-by={target}/seb.gpg")
    assert "1.0-1" in said
    assert (target / "yum" / "repodata" / "repomd.xml.asc").exists()


def test_apt_refuses_what_was_changed(key: str, dist: Path, tmp_path: Path) -> None:
    """A list of packages that is not the one that was signed ends the update."""
    need("apt-ftparchive", "createrepo_c", "apt-get")
    target = tmp_path / "repository"
    repository.lay_out(dist, target, key)
    with next(target.glob("apt/dists/stable/main/*/Packages")).open("a") as stream:
        stream.write("Package: other\n")
    with pytest.raises(AssertionError, match=r"(?i)hash sum|unexpected size|failed"):
        apt_versions(tmp_path / "apt", target, f"signed-by={target}/seb.gpg")


def test_a_second_release_keeps_the_first(dist: Path, tmp_path: Path) -> None:
    """So that a VM can go back: both versions are listed."""
    need("apt-ftparchive", "createrepo_c")
    target = tmp_path / "repository"
    repository.lay_out(dist, target, None)
    (old,) = dist.iterdir()
    control = tmp_path / "root" / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("1.0-1", "2.0-1"))
    newer = dist / old.name.replace("1.0", "2.0")
    run("dpkg-deb", "--build", str(tmp_path / "root"), str(newer))
    old.unlink()
    repository.lay_out(dist, target, None)
    listed = (target / "apt/dists/stable/main/binary-amd64/Packages").read_text()
    assert listed.count("Package: scheduled-events-bridge") == 2
    assert not (target / "apt/dists/stable/InRelease").exists()


def test_an_rpm_is_signed_with_the_key(key: str, tmp_path: Path) -> None:
    """Rpm says that the signature is good once it knows the key, and not before."""
    need("rpm", "rpmsign", "rpmbuild")
    spec = tmp_path / "x.spec"
    spec.write_text(
        "Name: x\nVersion: 1\nRelease: 1\nSummary: x\nLicense: MIT\nBuildArch: noarch\n"
        "%description\nx\n%files\n"
    )
    run("rpmbuild", "-bb", "--define", f"_rpmdir {tmp_path}/out", str(spec))
    (built,) = (tmp_path / "out").rglob("*.rpm")
    assert signatures.sign_packages(built.parent, key) == [built]
    public = signatures.public_key(tmp_path / "seb.asc", key, armor=True)
    database = ("--dbpath", str(tmp_path / "db"))
    before = subprocess.run(
        ["rpm", *database, "--checksig", str(built)], capture_output=True, text=True, check=False
    )
    assert "NOT OK" in before.stdout
    run("rpm", *database, "--import", str(public))
    assert "signatures OK" in run("rpm", *database, "--checksig", str(built))


def test_the_sums_are_signed(key: str, tmp_path: Path) -> None:
    """SHA256SUMS.asc is a signature that gpg takes."""
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("0  x\n")
    made = signatures.detached(sums, key)
    run("gpg", "--verify", str(made), str(sums))


def test_a_key_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release ends with gpg's own words, and not with a package that nobody signed."""
    need("gpg")
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "home"))
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("0  x\n")
    with pytest.raises(interpreters.Unavailable, match="gpg ended with"):
        signatures.detached(sums, "absent@example.invalid")
