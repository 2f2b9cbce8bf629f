"""The .deb and the .rpm of the Linux program: one for the bridge, one for the console.

Each brings the program with it, so that either can be installed, upgraded and removed without the
other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from release import archives, interpreters, manual, program
from release.interpreters import GLIBC, MINOR, Unavailable
from release.program import FILES

NAME: Final = "scheduled-events-bridge"
CONSOLE: Final = "scheduled-events-console"
_ROOT: Final = Path(__file__).parent.parent
_TOOLS: Final = Path(__file__).parent / "tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What one package is, beside the program."""

    name: str
    """Of the package, and of the folder below /usr/lib that holds the program."""
    files: Path
    """Scripts, account and settings."""
    settings: str
    """Its file in /etc/seb."""
    command: str
    """Where the command goes that reads the settings of the service."""
    directories: dict[str, int]
    """Further directories, each with its mode."""
    description: str
    texts: Callable[[Path, str], dict[str, str]]
    """What is installed beside the program, by its path below /; of the program and its version."""

    @property
    def home(self) -> str:
        """Where the program is on the machine."""
        return f"/usr/lib/{self.name}"


def _bridge_texts(seb: Path, version: str) -> dict[str, str]:
    unit = subprocess.run([str(seb), "systemd-unit"], check=True, capture_output=True, text=True)
    return {
        "usr/lib/systemd/system/seb.service": unit.stdout.replace(
            str(seb), f"{BRIDGE_PRODUCT.home}/bin/seb"
        ),
        "usr/lib/sysusers.d/seb.conf": (FILES / "linux" / "sysusers.conf").read_text("utf-8"),
        "usr/share/scheduled-events-bridge/credentials-from-files.conf": (
            FILES / "linux" / "credentials-from-files.conf"
        ).read_text("utf-8"),
        "usr/share/man/man1/seb.1": manual.page(partial(manual.said_by, seb), version),
        "usr/share/bash-completion/completions/seb": manual.completion(seb, "bash"),
        "usr/share/zsh/site-functions/_seb": manual.completion(seb, "zsh"),
        "usr/share/fish/vendor_completions.d/seb.fish": manual.completion(seb, "fish"),
    }


def _console_texts(seb: Path, version: str) -> dict[str, str]:
    unit = (_ROOT / "examples" / "seb-console.service").read_text("utf-8")
    return {
        "usr/lib/systemd/system/seb-console.service": unit.replace(
            "/opt/seb-console", CONSOLE_PRODUCT.home
        ),
        "usr/lib/sysusers.d/seb-console.conf": (FILES / "console" / "sysusers.conf").read_text(
            "utf-8"
        ),
        "usr/share/man/man1/seb-console.1": manual.console_page(
            partial(manual.said_by, seb), version
        ),
    }


BRIDGE_PRODUCT: Final = Product(
    name=NAME,
    files=FILES / "linux",
    settings="seb.env",
    command="usr/bin/seb",
    directories={"/etc/seb": 0o755, "/etc/seb/credentials": 0o700},
    description=(
        "Delivers Azure Scheduled Events from a VM to Event Hubs, MQTT, webhooks and more.\n"
        "At least once, through the very reboot that they announce. The package brings its own "
        "Python."
    ),
    texts=_bridge_texts,
)
CONSOLE_PRODUCT: Final = Product(
    name=CONSOLE,
    files=FILES / "console",
    settings="console.env",
    command=f"usr/lib/{CONSOLE}/bin/seb-of-the-service",
    directories={"/etc/seb": 0o755},
    description=(
        "One page for a fleet: which Azure Scheduled Events come to which VMs, and who is silent.\n"
        "It reads what the bridges send. The package brings its own Python."
    ),
    texts=_console_texts,
)
PRODUCTS: Final = (BRIDGE_PRODUCT, CONSOLE_PRODUCT)


def make(product: Product, folder: Path, version: str, work: Path, out: Path) -> list[Path]:
    """The .deb and the .rpm of the program in `folder`.

    Raises `Unavailable` without Go, which builds the packager.
    """
    work.mkdir(parents=True)
    root = _around(product, folder, version, work / "root")
    recipe = work / "nfpm.yaml"
    recipe.write_text(json.dumps(_recipe(product, folder, root, version), indent=1), "utf-8")
    nfpm = _nfpm()
    made = []
    for kind, name in (
        ("deb", f"{product.name}_{version}-1_amd64.deb"),
        ("rpm", f"{product.name}-{version}-1.x86_64.rpm"),
    ):
        call = [*(str(nfpm), "package", "--config", str(recipe)), "--packager", kind]
        subprocess.run([*call, "--target", str(out / name)], check=True, stdout=subprocess.DEVNULL)
        made.append(out / name)
    return made


def _around(product: Product, folder: Path, version: str, root: Path) -> Path:
    """What the packages install beside the program, laid out as in /."""
    texts = {
        **product.texts(folder / "bin" / "seb", version),
        f"usr/share/doc/{product.name}/copyright": (folder / "LICENCES.txt").read_text("utf-8"),
        f"etc/seb/{product.settings}": (product.files / product.settings).read_text("utf-8"),
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    program.script(
        FILES / "linux" / "seb-of-the-service",
        root / product.command,
        python=f"python{MINOR}",
        home=product.home,
    )
    archives.normalise(root)
    return root


def _recipe(product: Product, folder: Path, root: Path, version: str) -> dict[str, object]:
    """What nfpm makes the packages from; JSON is YAML."""
    own = [
        {
            "src": str(path),
            "dst": f"/{path.relative_to(root).as_posix()}",
            **({"type": "config|noreplace", "file_info": {"mode": 0o600}}
               if path.name == product.settings else {}),
        }
        for path in archives.files(root)
    ]  # fmt: skip
    glibc = ".".join(map(str, GLIBC))
    return {
        "name": product.name,
        "arch": "amd64",
        "platform": "linux",
        "version": version.replace(".dev", "~dev").replace("rc", "~rc"),
        "version_schema": "none",
        "release": "1",
        "section": "admin",
        "priority": "optional",
        "maintainer": "The scheduled-events-bridge project <security@example.invalid>",
        "description": product.description,
        "license": "MIT",
        "mtime": datetime.fromtimestamp(archives.epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "contents": [
            {"src": f"{folder}/", "dst": product.home, "type": "tree"},
            *(
                {"dst": each, "type": "dir", "file_info": {"mode": mode}}
                for each, mode in product.directories.items()
            ),
            *own,
        ],
        "scripts": {
            "postinstall": str(product.files / "after-install.sh"),
            "preremove": str(product.files / "before-remove.sh"),
            "postremove": str(product.files / "after-remove.sh"),
        },
        "overrides": {
            "deb": {"depends": [f"libc6 (>= {glibc})", "libgcc-s1 | libgcc1", "passwd"]},
            "rpm": {"depends": [f"glibc >= {glibc}", "libgcc", "shadow-utils"]},
        },
        "rpm": {"buildhost": "localhost", "group": "Applications/System"},
    }


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
