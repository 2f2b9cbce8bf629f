"""Pieces of a release: pins per platform, SBOM, licences, scripts of packages, Windows files."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bridge.cli import seb as commands
from release import linux, locks, manual, program, sbom, stable_abi, windows

ROOT = Path(__file__).parent.parent.parent
LINUX = ROOT / "release" / "files" / "linux"
WINDOWS = ROOT / "release" / "files" / "windows"
LOCK = ROOT / "requirements-all.lock"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="scripts of Linux packages")


@pytest.fixture(autouse=True)
def _moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that every file gets."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def wheel(folder: Path, name: str, metadata: str, **files: str) -> Path:
    """A wheel with little in it."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
        for each, text in files.items():
            archive.writestr(each.replace("__", "/"), text)
    return path


def test_a_lock_names_what_a_platform_needs() -> None:
    """Markers count for the platform that is built for, not for the one that builds."""
    on = {each.system: {pin.name for pin in locks.pins(LOCK, each)}
          for each in (linux.PLATFORM, windows.PLATFORM)}  # fmt: skip
    assert on["windows"] - on["linux"] >= {"tzdata"}
    assert on["linux"] - on["windows"] == set()
    assert {"cryptography", "pydantic-core", "azure-identity"} <= on["linux"]


def test_every_pin_of_a_lock_has_its_hashes() -> None:
    """None is read without: pip would refuse it, and say nothing about why."""
    found = locks.pins(LOCK, windows.PLATFORM)
    names = set(re.findall(r"^([a-z0-9._-]+)==", LOCK.read_text(), re.MULTILINE))
    assert {pin.name for pin in found} == names
    assert [pin.name for pin in found if not pin.hashes] == []


def test_the_sbom_names_every_wheel(tmp_path: Path) -> None:
    """Name, version, licence, and the hash of the very file; the same text each time."""
    made = wheel(tmp_path, "Some_Thing", "Name: Some_Thing\nVersion: 1.0\nLicense: Apache-2.0\n")
    components = list(sbom.of_wheels([made]))
    text = sbom.document("scheduled-events-bridge", "1.2.3", components)
    body = json.loads(text)
    assert [(each["purl"], each["licenses"]) for each in body["components"]] == [
        ("pkg:pypi/some-thing@1.0", [{"expression": "Apache-2.0"}])
    ]
    assert len(body["components"][0]["hashes"][0]["content"]) == 64
    assert text == sbom.document("scheduled-events-bridge", "1.2.3", components)
    assert body["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\n", "MIT OR Apache-2.0"),
        ("Classifier: License :: OSI Approved :: MIT License\n", "MIT"),
        ("License: ZPL 2.1\n", "ZPL-2.1"),
        ("License: see the file, please\n", "LicenseRef-see-LICENCES.txt"),
    ],
)
def test_the_licence_of_a_wheel(tmp_path: Path, metadata: str, licence: str) -> None:
    """By the field for it, else by classifiers, else a reference to the texts."""
    made = wheel(tmp_path, "x", f"Name: x\nVersion: 1.0\n{metadata}")
    assert [each.licence for each in sbom.of_wheels([made])] == [licence]


def test_the_texts_of_the_licences_are_shipped(tmp_path: Path) -> None:
    """Ours, that of the Python, and each that a wheel names."""
    made = wheel(
        tmp_path,
        "x",
        "Name: x\nVersion: 1.0\nLicense-File: COPYING\n",
        **{"x-1.0.dist-info__licenses__COPYING": "text of x"},
    )
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "LICENSE-python.txt").write_text("text of python")
    text = sbom.notices([made], folder).read_text()
    assert [
        each for each in ("MIT License", "text of python", "text of x") if each not in text
    ] == []
    assert not (folder / "LICENSE-python.txt").exists()


def test_the_glibc_that_a_program_needs(tmp_path: Path) -> None:
    """The newest version that any of its files binds; scripts do not count."""
    (tmp_path / "a.so").write_bytes(b"\x7fELF..\0GLIBC_2.4\0GLIBC_2.17\0")
    (tmp_path / "script").write_bytes(b"\0GLIBC_2.99\0")
    assert program.glibc_needed(tmp_path) == (2, 17)


@posix_only
@pytest.mark.parametrize(
    "name", ["after-install.sh", "before-remove.sh", "after-remove.sh", "seb.sh"]
)
def test_the_scripts_are_plain_sh(name: str) -> None:
    """Dash takes them: no script of a package needs bash."""
    subprocess.run(["sh", "-n", str(LINUX / name)], check=True)


@posix_only
@pytest.mark.parametrize(
    ("script", "word", "expected"),
    [
        ("after-remove.sh", "upgrade", ["systemctl daemon-reload"]),
        ("after-remove.sh", "remove", ["systemctl daemon-reload",
                                       "systemctl reset-failed seb.service"]),
        ("before-remove.sh", "upgrade", []),
        ("before-remove.sh", "1", []),
        ("before-remove.sh", "remove", ["systemctl disable --now --quiet seb.service"]),
        ("before-remove.sh", "0", ["systemctl disable --now --quiet seb.service"]),
        ("after-install.sh", "configure", ["systemd-sysusers seb.conf", "systemctl daemon-reload",
                                           "systemctl try-restart seb.service"]),
    ],
)  # fmt: skip
def test_what_the_scripts_do(script: str, word: str, expected: list[str], tmp_path: Path) -> None:
    """An upgrade stops nothing before the new version is there; an installation starts nothing."""
    for name in ("systemctl", "systemd-sysusers"):
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\n')
        fake.chmod(0o755)
    text = (LINUX / script).read_text().replace("/run/systemd/system", str(tmp_path))
    subprocess.run(
        ["sh", "-c", text, "sh", word], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True
    )
    calls = tmp_path / "calls"
    assert (calls.read_text().splitlines() if calls.exists() else []) == expected


def test_the_template_of_the_settings_is_valid(tmp_path: Path) -> None:
    """Each example in seb.env works if it is uncommented."""
    text = (LINUX / "seb.env").read_text()
    lines = re.findall(r"^#(SEB_\S+)$", text, re.MULTILINE)
    assert len(lines) >= 5
    from support.process.bridge import run_seb  # noqa: PLC0415  # a process of its own: a clean environment

    said = run_seb("config", "show", home=tmp_path, env=dict(each.split("=", 1) for each in lines))
    assert said.code == 0, said.err


def test_the_manual_page_has_every_command() -> None:
    """From the program's own help texts; nothing in it is taken for a request of roff."""
    program_here = Path(sys.executable).with_name("seb")
    if not program_here.exists():
        pytest.skip("seb is not installed beside this Python")
    text = manual.page(program_here, "1.2.3")
    listed = [name.replace("-", "\\-") for name in commands.list_commands(None)]  # type: ignore[arg-type]
    assert [name for name in listed if f".SS seb {name}\n" not in text] == []
    known = (".TH", ".SH", ".SS", ".nf", ".fi", ".B", ".BR", ".I", ".TP", ".PP")
    requests = [line for line in text.splitlines() if line.startswith((".", "'"))]
    assert [line for line in requests if line.split(" ")[0] not in known] == []


def test_the_names_of_an_import_library() -> None:
    """Functions and data are told apart; what is no short import object is passed over."""

    def member(body: bytes) -> bytes:
        return b"%-48s%-10d`\n" % (b"x/", len(body)) + body + b"\n" * (len(body) % 2)

    def short(name: bytes, kind: int) -> bytes:
        return b"\0\0\xff\xff" + bytes(14) + struct.pack("<H", kind) + name + b"\0python3.dll\0"

    library = (
        b"!<arch>\n" + member(b"index") + member(short(b"Py_A", 4)) + member(short(b"Py_B", 5))
    )
    assert list(stable_abi.exports(library)) == [("Py_A", False), ("Py_B", True)]


def test_the_service_of_windows() -> None:
    """It runs the seb.exe that install.ps1 makes, with the settings that install.ps1 protects."""
    root = ET.fromstring((WINDOWS / "seb-service.xml").read_text())
    install = (WINDOWS / "install.ps1").read_text()
    assert root.findtext("executable") == r"%BASE%\current\seb.exe"
    assert root.findtext("arguments") == "run"
    assert {each.get("name"): each.get("value") for each in root.iter("env")} == {
        "SEB_CONFIG": r"C:\ProgramData\seb\seb.toml"
    }
    for text in ("'seb-service.xml'", "'NT SERVICE\\seb'", "Join-Path $env:ProgramData 'seb'"):
        assert text in install


def test_the_settings_of_windows() -> None:
    """The template is valid TOML, and so is each example in it if it is uncommented."""
    text = (WINDOWS / "seb.toml").read_text()
    assert tomllib.loads(text) == {}
    plain = re.sub(r"^# (?=[a-z_]+ = |\[)", "", text, flags=re.MULTILINE)
    assert set(tomllib.loads(plain)["sink"]) == {"ops", "mqtt"}


def test_the_launcher_of_windows(tmp_path: Path) -> None:
    """It starts the python.exe beside it, and what it carries calls the command seb."""
    made = wheel(
        tmp_path,
        "x",
        "Name: x\nVersion: 1.0\n",
        **{"x-1.0.dist-info__entry_points.txt": "[console_scripts]\nseb = bridge.cli:main\n"},
    )
    exe = tmp_path / "seb.exe"
    exe.write_bytes(windows.launcher(made))
    assert b"#!<launcher_dir>\\python\\python.exe -I" in exe.read_bytes()
    with zipfile.ZipFile(exe) as carried:
        assert b"from bridge.cli import main" in carried.read("__main__.py")
