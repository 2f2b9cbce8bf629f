"""`python -m release`: everything that users install, in `dist/`. A piece that cannot be made on
this machine is named with its reason, and the rest goes on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from release import (
    archives,
    images,
    interpreters,
    linux,
    locks,
    packages,
    program,
    sbom,
    signatures,
    windows,
)

ROOT: Final = Path(__file__).parent.parent
LOCK: Final = ROOT / "requirements-azure-identity.lock"
"""What the bridge's programs bring along: managed identities, and nothing of the console."""
ALL: Final = ROOT / "requirements-all.lock"
"""What the console's program and the wheelhouse bring along: every extra."""
BACKEND: Final = ROOT / "requirements-build.lock"
"""What builds the wheel within the images."""
_WHEELHOUSE: Final = ("3.11", "3.12", "3.13")


class Release:
    """One run: the version, the wheel that the rest is made of, and where everything goes."""

    def __init__(self, out: Path, work: Path) -> None:
        self.out, self.work = out, work
        self.wheel = Path()
        self.version = ""

    def distributions(self) -> Iterable[Path]:
        """The wheel and the sdist, with the pinned build backend."""
        call = [sys.executable, "-m", "hatchling", "build", "-d", str(self.work / "built")]
        subprocess.run(call, check=True, cwd=ROOT, stderr=subprocess.DEVNULL)
        made = [
            Path(shutil.copy(path, self.out)) for path in sorted((self.work / "built").iterdir())
        ]
        (self.wheel,) = self.out.glob("*.whl")
        self.version = self.wheel.name.split("-")[1]
        return made

    def linux(self) -> Iterable[Path]:
        """The self-contained programs for Linux, bridge and console, their packages and SBOMs."""
        for product, lock in ((packages.BRIDGE_PRODUCT, LOCK), (packages.CONSOLE_PRODUCT, ALL)):
            wheels = self._wheels(linux.PLATFORM, lock)
            folder = linux.build(self.wheel, wheels, self.work / product.name / "program")
            glibc = ".".join(map(str, program.glibc_needed(folder)))
            print(f"{product.name} for Linux needs glibc {glibc} or later")
            root = f"{product.name}-{self.version}-linux-x86_64"
            yield archives.tar_gz(folder, self.out / f"{root}.tar.gz", root=root)
            parts = [*sbom.of_wheels(wheels), *sbom.inside_wheels([*wheels, self.wheel])]
            parts += interpreters.linux_components()
            yield self._sbom(root, parts, product.name)
            place = self.work / product.name / "package"
            yield from packages.make(product, folder, self.version, place, self.out)

    def windows(self) -> Iterable[Path]:
        """The .zip for Windows, and its SBOM."""
        wheels = self._wheels(windows.PLATFORM)
        folder = windows.build(self.wheel, wheels, self.version, self.work / "windows")
        root = f"{packages.NAME}-{self.version}-windows-x86_64"
        yield archives.zipped(folder, self.out / f"{root}.zip", root=root)
        parts = [
            *sbom.of_wheels(wheels),
            *sbom.inside_wheels([*wheels, self.wheel]),
            interpreters.windows_component(),
        ]
        yield self._sbom(root, parts)

    def wheelhouse(self) -> Iterable[Path]:
        """Every wheel for `pip install --no-index`, on Linux with a Python of its own."""
        folder = self.work / "wheelhouse"
        folder.mkdir()
        for machine in ("x86_64", "aarch64"):
            for python in _WHEELHOUSE:
                for wheel in self._wheels(
                    locks.Platform(system="linux", machine=machine, python=python), ALL
                ):
                    shutil.copy(wheel, folder)
        shutil.copy(self.wheel, folder)
        shutil.copy(ALL, folder / "requirements.lock")
        root = f"{packages.NAME}-{self.version}-wheelhouse-linux"
        yield archives.tar_gz(folder, self.out / f"{root}.tar.gz", root=root)

    def chart(self) -> Iterable[Path]:
        """The Helm chart, as `helm package` would lay it out."""
        folder = self.work / "chart"
        shutil.copytree(ROOT / "helm", folder, ignore=shutil.ignore_patterns(".*", "*~", "*.tgz"))
        lines = (folder / "Chart.yaml").read_text(encoding="utf-8").splitlines()
        (version,) = (each.split()[1] for each in lines if each.startswith("version:"))
        target = self.out / f"{packages.NAME}-chart-{version}.tgz"
        yield archives.tar_gz(folder, target, root=packages.NAME)

    def images(self) -> Iterable[Path]:
        """The container images of bridge and console."""
        wheels = [*self._wheels(linux.PLATFORM, ALL), *self._wheels(linux.PLATFORM, BACKEND)]
        return images.make(self.version, wheels, self.work / "images", self.out)

    def _wheels(self, platform: locks.Platform, lock: Path = LOCK) -> list[Path]:
        return locks.wheels(lock, platform, interpreters.cache() / "wheels")

    def _sbom(
        self, root: str, components: Iterable[sbom.Component], name: str = packages.NAME
    ) -> Path:
        target = self.out / f"{root}.cdx.json"
        target.write_text(sbom.document(name, self.version, components), encoding="utf-8")
        return target


def main() -> int:
    """Make everything, or the pieces that are named; 1 if one could not be made."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument(
        "pieces", nargs="*", help="linux, windows, wheelhouse, chart, images; all of them"
    )
    parser.add_argument("--without", action="append", default=[], metavar="PIECE")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args()
    out: Path = chosen.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        release = Release(out, Path(work))
        steps: dict[str, Callable[[], Iterable[Path]]] = {
            "distributions": release.distributions,
            "linux": release.linux,
            "windows": release.windows,
            "wheelhouse": release.wheelhouse,
            "chart": release.chart,
            "images": release.images,
        }
        for name, step in steps.items():
            if chosen.pieces and name not in ("distributions", *chosen.pieces):
                continue
            if name in chosen.without:
                continue
            try:
                for path in step():
                    print(f"{Path(path).stat().st_size / 1e6:7.1f} MB  {Path(path).name}")
            except interpreters.Unavailable as reason:
                missing.append(f"{name}: {reason}")
    if key := os.environ.get("SEB_RELEASE_KEY"):
        signatures.sign_packages(out, key)
    sums = archives.write_sums(out)
    if key:
        signatures.detached(sums, key)
    print(f"{out}/SHA256SUMS")
    for each in missing:
        print(f"LEFT OUT: {each}", file=sys.stderr)
    if missing:
        print("to do without a piece on purpose: make dist WITHOUT=PIECE", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
