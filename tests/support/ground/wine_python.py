"""A CPython for Windows under Wine, with the bridge installed in it as `seb.exe`.

It is built once into a cache directory (about three minutes) and used again while the locks are
the same. It needs Wine, a MinGW compiler and Maven; `missing` names what is not there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.ground.cache import ROOT, cache, fetch, say

VERSION: Final = "3.13.5-1.5.12"
"""Of org.bytedeco:cpython, which packs the files of the Windows installer into a jar."""
_MINOR: Final = "3.13"
_DLL: Final = "python313"
_TOOLS: Final = {
    "wine": "wine",
    "x86_64-w64-mingw32-gcc": "gcc-mingw-w64-x86-64",
    "mvn": "maven",
}
# Wheels of the tests that exist for Windows and that the unit tests import.
_OF_THE_TESTS: Final = frozenset(
    (
        *("arrow", "attrs", "azure-identity", "cloudevents", "colorama", "deprecation"),
        *("execnet", "fqdn", "hypothesis", "importlib-resources", "iniconfig", "isoduration"),
        *("jsonpointer", "jsonschema", "jsonschema-specifications", "kubernetes-validate"),
        *("lark", "msal", "msal-extensions", "packaging", "pluggy", "pygments", "pytest"),
        *("pytest-timeout", "pytest-xdist", "python-dateutil", "pyyaml", "referencing"),
        *("rfc3339-validator", "rfc3986-validator", "rfc3987-syntax", "rpds-py", "six"),
        *("sortedcontainers", "standardwebhooks", "uri-template", "webcolors"),
    )
)
# Wine 8 has no bcryptprimitives.dll, whose ProcessPrng Rust's libraries call for random bytes.
_RANDOM: Final = """\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    return SystemFunction036(data, (ULONG)length);
}
"""


def missing() -> str:
    """The packages that have to be installed first, in a sentence; empty if none."""
    names = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    return f"needs the packages {' '.join(names)} (make ground-tools)" if names else ""


# Wine 8 lacks them. It ends a program that calls CopyFile2, which shutil does without; libraries
# set the options of TCP keep-alive where Python has their names.
_WITHOUT: Final = """\
import _socket, _winapi
del _winapi.CopyFile2, _socket.TCP_KEEPIDLE, _socket.TCP_KEEPINTVL, _socket.TCP_KEEPCNT
"""


class WindowsPython:
    """Runs Windows programs: `python` is the interpreter, `seb` the command that pip made."""

    def __init__(self) -> None:
        self.home = cache("windows")
        self.prefix = self.home / "prefix"
        self.python = self.home / "py" / "python.exe"
        self.seb = self.home / "py" / "Scripts" / "seb.exe"

    def prepare(self) -> None:
        """Build what is not there yet, and install the bridge of this checkout."""
        if not (self.prefix / "drive_c").exists():
            say("windows: making a Wine prefix")
            self._wine("wineboot", "-i")
            self._wine("winecfg", "-v", "win10")
        if not self.python.exists():
            say(f"windows: CPython {VERSION}")
            self._unpack(self._jar())
            self._make_libraries()
        (self.home / "py" / "Lib" / "sitecustomize.py").write_text(_WITHOUT)
        locks = [ROOT / "requirements.lock", ROOT / "requirements-dev.lock"]
        state = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()
        mark = self.home / "locks"
        if not mark.exists() or mark.read_text() != state:
            say("windows: the pinned wheels")
            self._install_pins(*locks)
            mark.write_text(state)
        self._install_bridge()

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a Windows program is started with; IMDS is nowhere unless `more` says where."""
        return {
            **os.environ,
            "WINEDEBUG": "-all",
            "WINEPREFIX": str(self.prefix),
            "WINEDLLOVERRIDES": "mscoree,mshtml=",  # no questions about add-ons
            "SEB_IMDS__URL": "http://127.0.0.1:9",
            **(more or {}),
        }

    def command(self, program: Path, *arguments: str) -> list[str]:
        """The words that run a Windows program."""
        return ["wine", str(program), *arguments]

    def path(self, place: Path) -> str:
        """How Windows calls a file of this machine."""
        return "Z:" + str(place).replace("/", "\\")

    # How it is made.

    def _wine(self, *words: str) -> None:
        subprocess.run(
            ["wine", *words] if words[0].endswith(".exe") else list(words),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=300,
        )

    def _jar(self) -> Path:
        place = f"org/bytedeco/cpython/{VERSION}/cpython-{VERSION}-windows-x86_64.jar"
        jar = Path.home() / ".m2" / "repository" / place
        if not jar.exists():
            plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"
            artifact = f"org.bytedeco:cpython:{VERSION}:jar:windows-x86_64"
            fetch("mvn", "-q", "-B", plugin, "-Dtransitive=false", f"-Dartifact={artifact}")
        return jar

    def _unpack(self, jar: Path) -> None:
        """Lay the files out as the installer of python.org would."""
        unpacked, target = self.home / "jar", self.home / "py"
        for old in (unpacked, target):
            shutil.rmtree(old, ignore_errors=True)
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(unpacked)
        source = unpacked / "org/bytedeco/cpython/windows-x86_64"
        shutil.copytree(source / "lib", target / "Lib")
        (target / "DLLs").mkdir()
        for each in [*(target / "Lib").glob("*.pyd"), *(target / "Lib").glob("*.dll")]:
            runtime = each.name.startswith("vcruntime140")
            each.rename((target if runtime else target / "DLLs") / each.name)
        (target / "DLLs" / "_wmi.pyd").unlink()  # Wine 8 lacks what it calls; Python does without
        shutil.copy(source / f"{_DLL}.dll", target)
        shutil.copytree(source / "libs", target / "libs")
        shutil.copy(source / "bin" / "python.exe", target)
        shutil.rmtree(unpacked)

    def _make_libraries(self) -> None:
        """The random numbers of Rust's libraries, and python3.dll, which the jar has not."""
        compiler = ["x86_64-w64-mingw32-gcc", "-s", "-shared"]
        build = self.home / "build"
        build.mkdir(exist_ok=True)
        (build / "random.c").write_text(_RANDOM)
        system = self.prefix / "drive_c" / "windows" / "system32"
        target = system / "bcryptprimitives.dll"
        _run(*compiler, "-O2", "-o", str(target), str(build / "random.c"), "-ladvapi32")
        # python3.dll forwards each name of the stable interface to the version's own library.
        home = self.home / "py"
        listed = _run("x86_64-w64-mingw32-nm", str(home / "libs" / "python3.lib"))
        stable = set(re.findall(r" [A-Z] (?:__imp_)?(_?Py\w+)$", listed, re.MULTILINE))
        dumped = _run("x86_64-w64-mingw32-objdump", "-p", str(home / f"{_DLL}.dll"))
        table = dumped.partition("[Ordinal/Name Pointer] Table")[2]
        exported = set(re.findall(r" (_?Py\w+)$", table, re.MULTILINE))
        lines = [f"{name} = {_DLL}.{name}" for name in sorted(stable & exported)]
        (build / "python3.def").write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *lines]))
        (build / "empty.c").write_text("\n")
        sources = [str(build / "empty.c"), str(build / "python3.def")]
        _run(*compiler, "-nostdlib", "-Wl,--entry=0", "-o", str(home / "python3.dll"), *sources)

    def _install_pins(self, lock: Path, of_tests: Path) -> None:
        pins = _pins(lock) | {
            name: version for name, version in _pins(of_tests).items() if name in _OF_THE_TESTS
        }
        words = [f"{name}=={version}" for name, version in sorted(pins.items())]
        wheels = ("--platform", "win_amd64", "--python-version", _MINOR, "--implementation", "cp")
        where = ("--upgrade", "--target", str(self.home / "py" / "Lib" / "site-packages"))
        _pip("install", *where, *wheels, "--only-binary=:all:", "--no-deps", *words)

    def _install_bridge(self) -> None:
        wheels = self.home / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
        (wheel,) = wheels.glob("*.whl")
        options = ("--no-index", "--no-deps", "--force-reinstall", "--no-warn-script-location")
        pip = (str(self.python), "-m", "pip", "install", "--quiet", *options, self.path(wheel))
        self._wine(*pip)


def _pins(lock: Path) -> dict[str, str]:
    pattern = r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\\n]+)"
    return dict(re.findall(pattern, lock.read_text(), re.MULTILINE))


def _pip(*arguments: str) -> None:
    fetch(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout
