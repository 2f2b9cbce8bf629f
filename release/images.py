"""The container images, as files for `docker load` and `podman load`; podman makes them.

Podman 4 does not load a packed file by itself: `gunzip -c FILE | podman load`.

The build takes its wheels from the cache, as everything else does; the base image alone comes from
where the engine gets its images. With the same base, the same commit gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release import archives
from release.interpreters import Unavailable

_ROOT: Final = Path(__file__).parent.parent
_WHEELS: Final = "/run/wheels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image of the Dockerfile; `target` and `extras` are those of docs/docker.md."""

    name: str
    suffix: str = ""
    """What comes behind the version in its tag."""
    target: str = ""
    extras: str = ""


IMAGES: Final = (
    Image(name="scheduled-events-bridge"),
    Image(name="scheduled-events-bridge", suffix="-identity", extras="azure-identity"),
    Image(name="scheduled-events-console", target="console"),
)


def make(version: str, wheels: list[Path], work: Path, out: Path) -> Iterator[Path]:
    """Build each image from `wheels` and save it. Raises `Unavailable` with the reason."""
    engine = _engine()
    work.mkdir(parents=True)
    for wheel in wheels:
        shutil.copy(wheel, work)
    (work / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {_WHEELS}\n")
    for image in IMAGES:
        tag = f"localhost/{image.name}:{version}{image.suffix}"
        file = f"{image.name}-{version}{image.suffix}-image-linux-x86_64.tar"
        _call([*engine, *_build(image, tag, work)])
        saved = work / file
        _call([*engine, "save", "--quiet", "--format", "docker-archive", "-o", str(saved), tag])
        yield settle(saved, out / f"{file}.gz")
        saved.unlink()


def settle(saved: Path, target: Path) -> Path:
    """The saved image as `target`, without the name and the id of the container that made it."""
    with (
        tarfile.open(saved) as archive,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as settled,
    ):
        (image,) = json.loads(_read(archive, "manifest.json"))
        config = json.loads(_read(archive, image["Config"]))
        config.pop("container", None)
        for part in ("config", "container_config"):
            config.get(part, {}).pop("Hostname", None)
        text = json.dumps(config, sort_keys=True).encode()
        image["Config"] = f"{hashlib.sha256(text).hexdigest()}.json"
        manifest = json.dumps([image], sort_keys=True).encode()
        for name, body in (("manifest.json", manifest), (image["Config"], text)):
            settled.addfile(_entry(name, len(body)), io.BytesIO(body))
        for layer in image["Layers"]:
            settled.addfile(
                _entry(layer, archive.getmember(layer).size), archive.extractfile(layer)
            )
    return target


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    return b"" if stream is None else stream.read()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, archives.epoch(), 0o644
    return entry


def _engine() -> list[str]:
    if named := os.environ.get("SEB_RELEASE_ENGINE"):
        return shlex.split(named)
    if not shutil.which("podman"):
        raise Unavailable("not installed here: podman")
    return ["podman"]


def _build(image: Image, tag: str, work: Path) -> list[str]:
    """The engine's words; `--format docker` because the other one has no health check."""
    return [
        *("build", "--quiet", "--layers=false", "--format", "docker", "--tag", tag),
        *("--timestamp", str(archives.epoch())),
        *("--build-arg", f"SOURCE_DATE_EPOCH={archives.epoch()}"),
        *("--build-arg", f"EXTRAS={image.extras}"),
        *("--volume", f"{work}:{_WHEELS}:ro"),
        *("--volume", f"{work}/pip.conf:/etc/pip.conf:ro"),
        *(("--target", image.target) if image.target else ()),
        str(_ROOT),
    ]


def _call(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise Unavailable(f"{words[0]} {words[1]} ended with {done.returncode}: {said[:300]}")
