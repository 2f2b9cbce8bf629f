"""Pieces of a release: pins per platform, SBOM, licences, scripts of packages, Windows files."""

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from bridge.cli import seb as commands
from console.config.load import load
from console.ingest.settings import read_sources
from release import __main__ as release_main
from release import (
    images,
    interpreters,
    linux,
    locks,
    manual,
    packages,
    program,
    sbom,
    stable_abi,
    windows,
)

ROOT = Path(__file__).parent.parent.parent
LINUX = ROOT / "release" / "files" / "linux"
CONSOLE = ROOT / "release" / "files" / "console"
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
    lines = [line for line in LOCK.read_text().splitlines() if "== 'emscripten'" not in line]
    names = set(re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==", "\n".join(lines), re.MULTILINE))
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


def test_the_sbom_names_what_is_inside_wheels(tmp_path: Path) -> None:
    """What a wheel lists itself, and each library in it, with the version that OpenSSL holds."""
    listed = {
        "components": [
            {"name": "some", "version": "1.0", "purl": "pkg:pypi/some@1.0"},
            {"name": "krb5", "version": "1.18", "purl": "pkg:rpm/centos/krb5@1.18"},
            {"name": "libc", "version": "0.2", "purl": "pkg:cargo/libc@0.2",
             "licenses": [{"expression": "MIT OR Apache-2.0"}]},
        ]
    }  # fmt: skip
    files = {
        "some-1.0.dist-info__sboms__auditwheel.cdx.json": json.dumps(listed),
        "some.libs__libcrypto-3a0647ea.so.3": "\x7fELF OpenSSL 3.5.7 9 Jun 2026",
        "some.libs__libpq-e9b5c9ac.so.5.18": "\x7fELF",
        "some__module.so": "\x7fELF",
        "some__static__own.js": '"use strict";',
        "some__static__idiomorph.js": Path("console/web/pages/static/idiomorph.js").read_text(
            "utf-8"
        ),
    }
    made = wheel(tmp_path, "some", "Name: some\nVersion: 1.0\n", **files)
    found = [(each.name, each.version, each.licence) for each in sbom.inside_wheels([made])]
    assert found == [
        ("krb5", "1.18", "LicenseRef-see-LICENCES.txt"),
        ("libc", "0.2", "MIT OR Apache-2.0"),
        ("libcrypto", "3.5.7", "LicenseRef-see-LICENCES.txt"),
        ("libpq", "5.18", "LicenseRef-see-LICENCES.txt"),
        ("idiomorph", "0.8.0", "0BSD"),
    ]


def test_the_bridge_brings_nothing_of_the_console() -> None:
    """Its programs have no PostgreSQL client (with an OpenSSL of its own) and no web server."""
    names = {pin.name for pin in locks.pins(release_main.LOCK, linux.PLATFORM)}
    assert names & {"psycopg", "psycopg-binary", "sqlalchemy", "uvicorn", "alembic"} == set()
    assert "azure-identity" in names


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
    "path",
    [*LINUX.glob("*.sh"), *CONSOLE.glob("*.sh")],
    ids=lambda path: path.parent.name + path.name,
)
def test_the_scripts_are_plain_sh(path: Path) -> None:
    """Dash takes them: no script of a package needs bash."""
    subprocess.run(["sh", "-n", str(path)], check=True)


def calls_of(
    script: Path, word: str, place: Path, *, systemd: int = 252, restart: int = 0
) -> list[str]:
    """What a script of a package asks of systemd; everything else that it touches is in `place`.

    `restart` is what systemctl says to a restart.
    """
    place.mkdir(exist_ok=True)
    for name in ("systemctl", "systemd-sysusers", "getent", "userdel", "groupdel", "install"):
        fake = place / name
        fake.write_text(
            f'#!/bin/sh\necho "{name} $*" >> "{place}/calls"\n'
            f'if [ "$1" = --version ]; then echo "systemd {systemd} ({systemd}.22-1)"; fi\n'
            f"[ $1 != try-restart ] || exit {restart}\n"
        )
        fake.chmod(0o755)
    text = script.read_text().replace("/run/systemd/system", str(place))
    for name in ("/usr/bin/seb", "/usr/lib/scheduled", "/etc/", "/var/lib/"):
        text = text.replace(name, f"{place}{name}")
    for name in ("usr/bin", "etc/seb", "var/lib"):
        (place / name).mkdir(parents=True, exist_ok=True)
    environment = {"PATH": f"{place}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", text, "sh", word], env=environment, check=True)
    calls = place / "calls"
    said = calls.read_text().splitlines() if calls.exists() else []
    asked = (each for each in said if each != "systemctl --version")
    return [each for each in asked if each.startswith("system")]


@posix_only
@pytest.mark.parametrize("folder", [LINUX, CONSOLE], ids=["bridge", "console"])
@pytest.mark.parametrize(
    ("script", "word", "expected"),
    [
        ("after-remove.sh", "upgrade", ["systemctl daemon-reload"]),
        ("after-remove.sh", "remove", ["systemctl daemon-reload",
                                       "systemctl reset-failed UNIT.service"]),
        ("before-remove.sh", "upgrade", []),
        ("before-remove.sh", "1", []),
        ("before-remove.sh", "remove", ["systemctl disable --now --quiet UNIT.service"]),
        ("before-remove.sh", "0", ["systemctl disable --now --quiet UNIT.service"]),
        ("after-install.sh", "configure", ["systemd-sysusers UNIT.conf", "systemctl daemon-reload",
                                           "systemctl try-restart UNIT.service"]),
    ],
)  # fmt: skip
def test_what_the_scripts_do(
    folder: Path, script: str, word: str, expected: list[str], tmp_path: Path
) -> None:
    """An upgrade stops nothing before the new version is there; an installation starts nothing."""
    unit = "seb" if folder is LINUX else "seb-console"
    assert [each.replace("UNIT", unit) for each in expected] == calls_of(
        folder / script, word, tmp_path
    )


@posix_only
@pytest.mark.parametrize("folder", [LINUX, CONSOLE], ids=["bridge", "console"])
def test_a_service_that_does_not_start_again(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The package is installed nevertheless, and says so: half installed it would be in the way of
    every other package.
    """
    calls_of(folder / "after-install.sh", "configure", tmp_path, restart=1)
    assert "did not start again" in capfd.readouterr().err


@posix_only
@pytest.mark.parametrize(("systemd", "from_files"), [(239, True), (246, True), (247, False)])
def test_secrets_where_systemd_hands_over_none(
    systemd: int, from_files: bool, tmp_path: Path
) -> None:
    """An old systemd gets the drop-in that makes the service read the files, a newer one not."""
    drop_in = tmp_path / "etc/systemd/system/seb.service.d/00-credentials-from-files.conf"
    calls_of(LINUX / "after-install.sh", "configure", tmp_path, systemd=systemd)
    assert drop_in.is_symlink() is from_files
    calls_of(LINUX / "after-install.sh", "configure", tmp_path, systemd=252)
    assert not drop_in.is_symlink()


@posix_only
@pytest.mark.parametrize(
    ("folder", "other", "own"),
    [(LINUX, "console.env", "credentials"), (CONSOLE, "seb.env", "console")],
)
def test_the_last_package_takes_the_settings_along(
    folder: Path, other: str, own: str, tmp_path: Path
) -> None:
    """Bridge and console share /etc/seb: a purge takes the package's own while the other is there,
    and then all of it.
    """
    settings = tmp_path / "etc" / "seb"
    (settings / own).mkdir(parents=True)
    (settings / other).touch()
    calls_of(folder / "after-remove.sh", "purge", tmp_path)
    assert [each.name for each in settings.iterdir()] == [other]
    (settings / other).unlink()
    calls_of(folder / "after-remove.sh", "purge", tmp_path)
    assert not settings.exists()


@posix_only
def test_who_has_the_command_seb(tmp_path: Path) -> None:
    """The console's link where no bridge is, the bridge's file where it is, and the link again."""
    seb = tmp_path / "usr" / "bin" / "seb"
    program = tmp_path / "usr" / "lib" / "scheduled-events-console" / "bin" / "seb-of-the-service"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    calls_of(CONSOLE / "after-install.sh", "configure", tmp_path)
    assert seb.resolve() == program
    seb.unlink()
    seb.write_text("the bridge's")
    calls_of(CONSOLE / "after-install.sh", "configure", tmp_path)
    assert seb.read_text() == "the bridge's"
    seb.unlink()
    calls_of(LINUX / "after-remove.sh", "remove", tmp_path)
    assert seb.is_symlink()
    program.unlink()
    calls_of(CONSOLE / "after-remove.sh", "remove", tmp_path)
    assert not seb.is_symlink()


def test_the_template_of_the_settings_is_valid(tmp_path: Path) -> None:
    """Each example in seb.env works if it is uncommented."""
    text = (LINUX / "seb.env").read_text()
    lines = re.findall(r"^#(SEB_\S+)$", text, re.MULTILINE)
    assert len(lines) >= 5
    from support.process.bridge import run_seb  # noqa: PLC0415  # a process of its own: a clean environment

    result = run_seb(
        "config", "show", home=tmp_path, env=dict(each.split("=", 1) for each in lines)
    )
    assert result.code == 0, result.err


def test_the_template_of_the_consoles_settings_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each example in console.env works if it is uncommented."""
    monkeypatch.chdir(tmp_path)
    text = (CONSOLE / "console.env").read_text()
    lines = re.findall(r"^#(SEB_\S+)$", text, re.MULTILINE)
    settings = load(environ=dict(each.split("=", 1) for each in lines))
    assert list(read_sources(settings.source)) == ["mqtt", "eventhub"]
    assert settings.public_url == "https://console.example"


@posix_only
def test_the_unit_of_the_consoles_package(tmp_path: Path) -> None:
    """It runs the package's own program, as the account that the package makes."""
    program_here = tmp_path / "seb"
    program_here.write_text(
        "#!/bin/sh\n[ \"$*\" != 'console --help' ] || printf 'Commands:\\n  run  Run it.\\n'\n"
    )
    program_here.chmod(0o755)
    texts = packages.CONSOLE_PRODUCT.texts(program_here, "1.2.3")
    unit = texts["usr/lib/systemd/system/seb-console.service"]
    assert "ExecStart=/usr/lib/scheduled-events-console/bin/seb console run\n" in unit
    assert "/opt/" not in unit
    account = texts["usr/lib/sysusers.d/seb-console.conf"].splitlines()[-1]
    assert account.startswith("u seb-console - ")  # DynamicUser= takes the unit's name
    assert ".SS seb console run\n" in texts["usr/share/man/man1/seb-console.1"]


def test_the_manual_page_has_every_command() -> None:
    """From the program's own help texts; nothing in it is taken for a request of roff."""

    def say(*words: str) -> str:
        return CliRunner().invoke(commands, words, prog_name="seb").stdout

    text = manual.page(say, "1.2.3")
    listed = [name.replace("-", "\\-") for name in commands.list_commands(None)]  # type: ignore[arg-type]
    assert [name for name in listed if f".SS seb {name}\n" not in text] == []
    known = (".TH", ".SH", ".SS", ".nf", ".fi", ".B", ".BR", ".I", ".TP", ".PP")
    requests = [line for line in text.splitlines() if line.startswith((".", "'"))]
    assert [line for line in requests if line.split(" ")[0] not in known] == []


@posix_only
@pytest.mark.parametrize("newer", ["3.0-2", ""])
def test_a_source_package_that_left_the_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: str
) -> None:
    """The message names what there is instead, and each way on; the mirror may have nothing."""
    cached = tmp_path / "cache"
    further = tmp_path / "old.list"
    further.write_text("deb-src [check-valid-until=no] https://old.example/ trixie main\n")
    monkeypatch.setenv("SEB_RELEASE_CACHE", str(cached))
    monkeypatch.setenv("SEB_RELEASE_SOURCES_LIST", str(further))
    monkeypatch.setattr(interpreters, "_source_list", lambda: "deb-src https://x.example/ t main\n")
    for name, script in {
        "apt-get": 'case "$*" in *update*) exit 0;; esac; exit 100',
        "apt-cache": f'[ -z "{newer}" ] || echo "Version: {newer}"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    first = interpreters.sources()[0]
    with pytest.raises(interpreters.Unavailable) as raised:
        interpreters._download_sources()
    error = str(raised.value)
    assert f"{first.name} {first.version} no more" in error
    assert (newer or "no version of it") in error
    assert "SEB_RELEASE_SOURCES_LIST" in error
    assert str(cached / "sources") in error
    assert "old.example" in (cached / "apt" / "sources.list").read_text()


@posix_only
def test_an_image_needs_an_engine_and_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an engine, or if its build fails, the reason is one line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(interpreters.Unavailable, match="not installed here: podman"):
        next(images.make("1.2.3", [], tmp_path / "one", tmp_path))
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\necho first >&2\necho 'no such base' >&2\nexit 125\n")
    engine.chmod(0o755)
    monkeypatch.setenv("SEB_RELEASE_ENGINE", str(engine))
    with pytest.raises(interpreters.Unavailable, match="build ended with 125: no such base"):
        next(images.make("1.2.3", [], tmp_path / "two", tmp_path))


def test_an_image_forgets_who_made_it(tmp_path: Path) -> None:
    """The engine writes down the container that it built in; without that, two builds are equal."""
    made = []
    for maker in ("one", "two"):
        config = {"container": maker, "config": {"Hostname": maker, "User": "1"}, "os": "linux"}
        manifest = [{"Config": f"{maker}.json", "RepoTags": ["x:1"], "Layers": ["a.tar"]}]
        parts = {"manifest.json": manifest, f"{maker}.json": config, "a.tar": "layer"}
        with tarfile.open(tmp_path / maker, "w") as archive:
            for name, part in parts.items():
                body = json.dumps(part).encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
        made.append(images.settle(tmp_path / maker, tmp_path / f"{maker}.gz"))
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        names = archive.getnames()
        (config_name,) = (each for each in names if each.endswith(".json") and each[0] != "m")
        stream = archive.extractfile(config_name)
        assert stream is not None
        assert json.load(stream) == {"config": {"User": "1"}, "os": "linux"}
    assert names == ["manifest.json", config_name, "a.tar"]


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


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_the_packages_are_made_again_once_a_source_has_changed(tmp_path: Path) -> None:
    """What `make ground` installs is made if it is missing or older than a source."""
    for name in ("bridge/x.py", "pyproject.toml", ".venv/dev.stamp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    # The environment is not what is tested.
    (tmp_path / "Makefile").write_text(
        re.sub(r"^\$\(VENV\)/dev.stamp:.*\n(\t.*\n)*", "", text, flags=re.MULTILINE)
    )

    def is_current() -> bool:
        """Whether make would do nothing."""
        call = ["make", "--question", "dist/SHA256SUMS"]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, check=False).returncode == 0

    assert not is_current()
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "SHA256SUMS").touch()
    assert is_current()
    made = (tmp_path / "dist" / "SHA256SUMS").stat().st_mtime
    os.utime(tmp_path / ".venv/dev.stamp", (made + 5, made + 5))
    (tmp_path / "bridge" / "__pycache__").mkdir()
    os.utime(tmp_path / "bridge", (made + 5, made + 5))
    assert is_current()
    os.utime(tmp_path / "bridge/x.py", (made + 5, made + 5))
    assert not is_current()
