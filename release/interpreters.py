"""The Pythons that the programs bring along: built for Linux, taken ready-made for Windows.

Both are made once per machine and kept in a cache, under the hash of everything that they are made
of; so a second `make dist` needs neither network nor compiler.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release import archives, sbom, stable_abi
from release.program import FILES

MINOR: Final = "3.13"
GLIBC: Final = (2, 28)
"""What the Linux program needs: RHEL 8, Debian 10, Ubuntu 20.04. The wheels allow nothing older."""
_WINDOWS: Final = "org.bytedeco:cpython:3.13.5-1.5.12:jar:windows-x86_64"
_WINDOWS_SHA256: Final = "cfe5502ffa7ea369be707b6d88bf68344732a7800450665080fb4267c01bfeae"
_MAVEN_GET: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"


class Unavailable(Exception):
    """Something that this machine lacks; the text is one line for the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source package of Debian."""

    name: str
    version: str
    sha256: str


def cache() -> Path:
    """Where downloads and built interpreters stay."""
    place = os.environ.get("SEB_RELEASE_CACHE") or Path.home() / ".cache" / "seb-release"
    return Path(place)


def sources() -> list[Source]:
    """What the Linux Python is built from."""
    lines = (FILES / "python" / "sources.lock").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [Source(name=name, version=version, sha256=sha) for name, version, sha in rows]


def linux() -> Path:
    """The tree of the Linux Python: bin/, lib/, and its licences."""
    recipe = b"".join(path.read_bytes() for path in sorted((FILES / "python").iterdir()))
    key = hashlib.sha256(recipe + str(GLIBC).encode()).hexdigest()[:16]
    target = cache() / f"python-linux-x86_64-{key}"
    if not target.exists():
        _need("apt-get", "dpkg-source", "patch", "make", "perl", "tclsh", "cc", "autoreconf")
        # Always in the same place: some programs write down where they were built.
        work = cache() / "work"
        shutil.rmtree(work, ignore_errors=True)
        unpacked = _unpack(_download_sources(), work / "sources")
        zig = _zig()
        subprocess.run(
            [*("bash", str(FILES / "python" / "build.sh"), str(unpacked), str(work / "build")),
             *("x86_64", ".".join(map(str, GLIBC)))],
            check=True,
            env={**os.environ, "PATH": f"{zig}:{os.environ['PATH']}"},
        )  # fmt: skip
        shutil.move(work / "build" / "out" / "python", target)
        shutil.rmtree(work)
    return target


def windows() -> Path:
    """The unpacked tree of the Windows Python."""
    target = cache() / f"python-windows-x86_64-{_WINDOWS_SHA256[:16]}"
    if not target.exists():
        _need("mvn")
        group, name, version, kind, classifier = _WINDOWS.split(":")
        file = f"{name}-{version}-{classifier}.{kind}"
        place = Path.home() / ".m2" / "repository" / Path(*group.split("."), name, version, file)
        if not place.exists():
            subprocess.run(
                ["mvn", "-q", "-B", _MAVEN_GET, "-Dtransitive=false", f"-Dartifact={_WINDOWS}"],
                check=True,
            )
        if archives.sha256(place) != _WINDOWS_SHA256:
            raise Unavailable(f"{place} is not the file that is pinned: its SHA-256 differs")
        part = target.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(place) as archive:
            archive.extractall(part)
        tree = part / "org" / "bytedeco" / "cpython" / "windows-x86_64"
        short = f"python{MINOR.replace('.', '')}"
        stable_abi.build(tree / "libs" / "python3.lib", short, tree / "python3.dll", _zig())
        shutil.move(tree, target)
        shutil.rmtree(part)
    return target


def windows_component() -> sbom.Component:
    """The Windows Python, for the SBOM; OpenSSL, SQLite and others are inside."""
    group, name, version, *_ = _WINDOWS.split(":")
    return sbom.Component(
        name=name,
        version=version,
        licence="PSF-2.0",
        purl=f"pkg:maven/{group}/{name}@{version}?classifier=windows-x86_64",
        sha256=_WINDOWS_SHA256,
    )


def linux_components() -> list[sbom.Component]:
    """What the Linux Python is built from, for the SBOM."""
    return [
        sbom.Component(
            name=each.name,
            version=each.version,
            licence=sbom.OF_SOURCES[each.name],
            purl=f"pkg:deb/debian/{each.name}@{each.version}?arch=source",
        )
        for each in sources()
    ]


def _need(*commands: str) -> None:
    if missing := [each for each in commands if not shutil.which(each)]:
        raise Unavailable(f"not installed here: {', '.join(missing)}")


def _download_sources() -> Path:
    """The source packages, with the machine's own apt and its keys; only what the lock names.

    Raises `Unavailable` if Debian has one no more, with what to do about it.
    """
    target = cache() / "sources"
    target.mkdir(parents=True, exist_ok=True)
    wanted = {target / f"{each.name}_{each.version.partition(':')[2] or each.version}.dsc": each
              for each in sources()}  # fmt: skip
    missing = [each for path, each in wanted.items() if not path.exists()]
    if missing:
        options = _apt_options()
        if subprocess.run(["apt-get", "-qq", *options, "update"], check=False).returncode:
            raise Unavailable("apt-get update failed: is Debian's archive reachable from here?")
        for each in missing:
            asked = ["apt-get", "-qq", *options, "source", "--download-only"]
            done = subprocess.run([*asked, f"{each.name}={each.version}"], check=False, cwd=target)
            if done.returncode:
                raise Unavailable(_gone(each, _versions(each.name, options)))
    for path, source in wanted.items():
        if archives.sha256(path) != source.sha256:
            raise Unavailable(f"{path} is not the file that is pinned: its SHA-256 differs")
    return target


def _apt_options() -> list[str]:
    """What makes apt look at the sources of Debian 13, and at nothing that it keeps elsewhere."""
    places = cache() / "apt"
    (places / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (places / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    text = _source_list()
    if more := os.environ.get("SEB_RELEASE_SOURCES_LIST"):
        text += Path(more).read_text(encoding="utf-8")
    (places / "sources.list").write_text(text, encoding="utf-8")
    return [
        *("-o", f"Dir::Etc::sourcelist={places / 'sources.list'}"),
        *("-o", "Dir::Etc::sourceparts=/dev/null", "-o", f"Dir::State::lists={places}/lists"),
        *("-o", f"Dir::Cache={places}", "-o", "APT::Sandbox::User=root"),
    ]


def _versions(name: str, options: list[str]) -> list[str]:
    """The versions of a source package that apt knows, as it lists them."""
    asked = ["apt-cache", *options, "showsrc", "--only-source", name]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    return re.findall(r"^Version: (\S+)$", done.stdout, re.MULTILINE)


def _gone(source: Source, there: list[str]) -> str:
    """What a person does about a source package that has left the mirrors."""
    instead = f"it has {', '.join(there)}" if there else "it has no version of it"
    return (
        f"Debian's archive has {source.name} {source.version} no more ({instead}). For the same "
        "bytes as before, name a sources.list of an archive of old packages in "
        f"SEB_RELEASE_SOURCES_LIST, or put the .dsc and its files into {cache() / 'sources'}. For "
        "the newer one, change release/files/python/sources.lock"
    )


def _source_list() -> str:
    """Where this machine gets Debian from, asked for the sources of Debian 13."""
    lines = []
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for block in path.read_text(encoding="utf-8").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            security = "security" in fields.get("Suites", "")
            suite = "trixie-security" if security else "trixie"
            if "URIs" in fields:
                signed = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
                lines.append(f"deb-src {signed}{fields['URIs'].strip()} {suite} main\n")
    if not lines:
        raise Unavailable("no sources of Debian packages: the Linux Python is built on Debian 12+")
    return "".join(lines)


def _unpack(folder: Path, target: Path) -> Path:
    """Each source package as `target`/NAME, without Debian's patches, checked by dpkg."""
    target.mkdir(parents=True)
    for source in sources():
        plain = source.version.partition(":")[2] or source.version
        subprocess.run(
            [*("dpkg-source", "--skip-patches", "-x"),
             *(str(folder / f"{source.name}_{plain}.dsc"), str(target / source.name))],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # no word on whose signature it is: the lock has the hash
        )  # fmt: skip
    return target


def _zig() -> Path:
    """The directory of the compiler, which comes as a wheel."""
    lock = FILES / "python" / "compiler.lock"
    folder = cache() / f"zig-{archives.sha256(lock)[:16]}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        pip = [*(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
               *("--require-hashes", "--target", str(part), "-r", str(lock))]  # fmt: skip
        subprocess.run(pip, check=True)
        part.rename(folder)
    return folder / "ziglang"
