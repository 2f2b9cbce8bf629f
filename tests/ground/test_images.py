"""The images of `make dist`: the same each time, made without network, and what runs in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ground.cache import ROOT
from support.ground.podman import Engine, missing

from bridge.version import __version__
from release import images, interpreters, linux, locks

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
NAMES = ["scheduled-events-bridge", "scheduled-events-console"]
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with the base image in its store."""
    if why := missing():
        pytest.skip(why)
    with Engine(tmp_path_factory.mktemp("engine"), trusted=BUNDLE, hosts=()) as made:
        yield made


@pytest.fixture(scope="module")
def wheels() -> list[Path]:
    """What the locks name, from the cache of `make dist`."""
    files = [ROOT / f"requirements-{name}.lock" for name in ("all", "build")]
    folder = interpreters.cache() / "wheels"
    return [wheel for file in files for wheel in locks.wheels(file, linux.PLATFORM, folder)]


def test_an_image_is_the_same_each_time(
    engine: Engine, wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bridge and console, each built twice without a package index: the files are equal."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("SEB_RELEASE_ENGINE", str(engine.home / "bin" / "docker"))
    monkeypatch.setattr(images, "IMAGES", [each for each in images.IMAGES if not each.suffix])
    sums = []
    for run in ("one", "two"):
        out = tmp_path / run
        out.mkdir()
        made = list(images.make(__version__, wheels, tmp_path / f"work-{run}", out))
        assert [each.name.partition(f"-{__version__}")[0] for each in made] == NAMES
        sums.append([hashlib.sha256(each.read_bytes()).hexdigest() for each in made])
    assert sums[0] == sums[1]

    for name, path in zip(NAMES, sorted((tmp_path / "two").iterdir()), strict=True):
        engine.run(
            f"docker rmi --force localhost/{name}:{__version__}; gunzip -c {path} | docker load"
        )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_it_runs(engine: Engine, name: str) -> None:
    """The file that was loaded is an image without privileges, with a health check."""
    image = f"localhost/{name}:{__version__}"
    assert engine.run(f"docker run --rm --network none {image} version").strip() == __version__
    output = engine.run(f"docker image inspect {image}")
    assert '"User": "65532:65532"' in output
    assert "Healthcheck" in output
