"""The program for Linux, and the .deb and the .rpm of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from release import archives, interpreters, manual, program, sbom
from release.interpreters import GLIBC, MINOR, Unavailable
from release.locks import Platform
from release.program import FILES

PLATFORM: Final = Platform(system="linux", machine="x86_64", python=MINOR)
HOME: Final = "/usr/lib/scheduled-events-bridge"
_NAME: Final = "scheduled-events-bridge"
_TOOLS: Final = Path(__file__).parent / "tools"
_DESCRIPTION: Final = (
    "Delivers Azure Scheduled Events from a VM to Event Hubs, MQTT, webhooks and more.\n"
    "At least once, through the very reboot that they announce. The package brings its own Python."
)


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
    script(FILES / "linux" / "seb.sh", target / "bin" / "seb")
    program.compile_all(target / "bin" / f"python{MINOR}", library)
    sbom.notices(wheels, target)
    needed = program.glibc_needed(target)
    if needed > GLIBC:
        raise Unavailable(f"the Linux program needs glibc {needed}, more than {GLIBC}")
    normalise(target)
    return target


def script(source: Path, target: Path) -> None:
    """A script of ours with the name of its Python filled in."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text(encoding="utf-8").replace("@PYTHON@", f"python{MINOR}")
    target.write_text(text, encoding="utf-8")
    target.chmod(0o755)


def normalise(folder: Path) -> None:
    """One time and one of two modes for every file, so that packages of it are the same."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else archives.mode(path))
        os.utime(path, (archives.epoch(), archives.epoch()), follow_symlinks=False)


def packages(folder: Path, version: str, work: Path, out: Path) -> list[Path]:
    """The .deb and the .rpm of the program in `folder`."""
    root = _around(folder, version, work / "package")
    recipe = work / "nfpm.yaml"
    recipe.write_text(json.dumps(_recipe(folder, root, version), indent=1), encoding="utf-8")
    nfpm = _nfpm()
    made = []
    for kind, name in (
        ("deb", f"{_NAME}_{version}-1_amd64.deb"),
        ("rpm", f"{_NAME}-{version}-1.x86_64.rpm"),
    ):
        call = [*(str(nfpm), "package", "--config", str(recipe)), "--packager", kind]
        subprocess.run([*call, "--target", str(out / name)], check=True, stdout=subprocess.DEVNULL)
        made.append(out / name)
    return made


def _around(folder: Path, version: str, root: Path) -> Path:
    """What the packages install beside the program, laid out as in /."""
    seb = folder / "bin" / "seb"
    texts = {
        "usr/lib/systemd/system/seb.service": _unit(folder),
        "usr/lib/sysusers.d/seb.conf": (FILES / "linux" / "sysusers.conf").read_text("utf-8"),
        "usr/share/man/man1/seb.1": manual.page(seb, version),
        "usr/share/bash-completion/completions/seb": manual.completion(seb, "bash"),
        "usr/share/zsh/site-functions/_seb": manual.completion(seb, "zsh"),
        "usr/share/fish/vendor_completions.d/seb.fish": manual.completion(seb, "fish"),
        f"usr/share/doc/{_NAME}/copyright": (folder / "LICENCES.txt").read_text("utf-8"),
        "etc/seb/seb.env": (FILES / "linux" / "seb.env").read_text("utf-8"),
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    script(FILES / "linux" / "seb-of-the-service", root / "usr" / "bin" / "seb")
    normalise(root)
    return root


def _unit(folder: Path) -> str:
    """The unit that the program prints, for the place where the packages put it."""
    seb = folder / "bin" / "seb"
    done = subprocess.run([str(seb), "systemd-unit"], check=True, capture_output=True, text=True)
    return done.stdout.replace(str(seb), f"{HOME}/bin/seb")


def _recipe(folder: Path, root: Path, version: str) -> dict[str, object]:
    """What nfpm makes the packages from; JSON is YAML."""
    own = [
        {
            "src": str(path),
            "dst": f"/{path.relative_to(root).as_posix()}",
            **({"type": "config|noreplace", "file_info": {"mode": 0o600}}
               if path.name == "seb.env" else {}),
        }
        for path in archives.files(root)
    ]  # fmt: skip
    scripts = FILES / "linux"
    glibc = ".".join(map(str, GLIBC))
    return {
        "name": _NAME,
        "arch": "amd64",
        "platform": "linux",
        "version": version.replace(".dev", "~dev").replace("rc", "~rc"),
        "version_schema": "none",
        "release": "1",
        "section": "admin",
        "priority": "optional",
        "maintainer": "The scheduled-events-bridge project <security@example.invalid>",
        "description": _DESCRIPTION,
        "license": "MIT",
        "mtime": _moment(),
        "contents": [
            {"src": f"{folder}/", "dst": HOME, "type": "tree"},
            {"dst": "/etc/seb", "type": "dir", "file_info": {"mode": 0o755}},
            {"dst": "/etc/seb/credentials", "type": "dir", "file_info": {"mode": 0o700}},
            *own,
        ],
        "scripts": {
            "postinstall": str(scripts / "after-install.sh"),
            "preremove": str(scripts / "before-remove.sh"),
            "postremove": str(scripts / "after-remove.sh"),
        },
        "overrides": {
            "deb": {"depends": [f"libc6 (>= {glibc})", "libgcc-s1 | libgcc1", "passwd"]},
            "rpm": {"depends": [f"glibc >= {glibc}", "libgcc", "shadow-utils"]},
        },
        "rpm": {"buildhost": "localhost", "group": "Applications/System"},
    }


def _moment() -> str:
    from datetime import UTC, datetime  # noqa: PLC0415  # the one place that needs it

    return datetime.fromtimestamp(archives.epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _nfpm() -> Path:
    """nfpm, built once from the modules that tools/go.sum pins."""
    if not (go := shutil.which("go")):
        raise Unavailable("not installed here: go")
    key = hashlib.sha256((_TOOLS / "go.sum").read_bytes()).hexdigest()[:16]
    target = interpreters.cache() / f"nfpm-{key}"
    if not target.exists():
        module = "github.com/goreleaser/nfpm/v2/cmd/nfpm"
        build = [go, "build", "-mod=readonly", "-trimpath", "-o", str(target), module]
        subprocess.run(build, check=True, cwd=_TOOLS)
    return target
