import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sinks import registry
from sinks.registry import BUILT_IN, INTERNAL, BrokenKindError, UnknownKindError

ROOT = Path(__file__).parents[2]
BRIDGE = "bridge knows of sinks the contract and the registry, and no concrete sink"
ONLY_HTTP = "only imds and the HTTP sinks speak requests"
CONTRACTS_WITH_KINDS = {
    "sinks.shared is about no sink: it imports nothing else of this project": "forbidden_modules",
    BRIDGE: "forbidden_modules",
    "concrete sinks do not know each other": "modules",
    ONLY_HTTP: "source_modules",
}
"""The contracts of import-linter that list the kinds of sinks, each with the list's key."""


def installed(directory: Path, patch: pytest.MonkeyPatch, **points: str) -> None:
    """Make the files of an installed package with these entry points."""
    info = directory / "someones_sinks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-sinks\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n" + "".join(lines))
    patch.syspath_prepend(directory)


@pytest.mark.parametrize("kind", [*BUILT_IN, *INTERNAL])
def test_each_kind_of_ours_stands_in_all_places(kind: str) -> None:
    """Each kind is in every place that CONTRIBUTING.md names; the message lists missing ones."""
    module = f"sinks.{kind}"
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {each["name"]: each for each in found["tool"]["importlinter"]["contracts"]}
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests/sinks").glob("test_*.py")]
    kept = [text for text in tests if f"from {module}" in text and "SinkContract)" in text]
    missing = [
        f'pyproject.toml, contract "{name}": {module} in {key}'
        for name, key in CONTRACTS_WITH_KINDS.items()
        if module not in contracts[name][key]
    ]
    if speaks_http(kind):
        missing = [place for place in missing if ONLY_HTTP not in place]
    if not kept:
        missing.append(f"tests/sinks/test_{kind}.py: a subclass of SinkContract")
    assert not missing, f"{kind} is missing in:\n" + "\n".join(missing)


def speaks_http(kind: str) -> bool:
    """Check whether the kind sends its records with `sinks.http`, which may use requests."""
    place = ROOT / "sinks" / kind
    files = place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    return any("from sinks.http" in file.read_text(encoding="utf-8") for file in files)


def test_the_readme_has_every_kind() -> None:
    """The README's table of sinks has every kind."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [kind for kind in BUILT_IN if f"\n| `{kind}` |" not in readme] == []


@pytest.mark.parametrize("kind", BUILT_IN)
def test_each_built_in_kind_loads_the_class_that_says_so(kind: str) -> None:
    """The registry's name for each kind is the `KIND` of its class."""
    assert kind == registry.load(kind).KIND


def test_built_in_kinds_load_without_the_libraries_of_an_extra() -> None:
    """Every built-in kind can be loaded without the libraries of an extra, so that `seb config env`
    and the reference list its settings.
    """
    script = (
        "import sys\n"
        "for extra in ('azure.identity', 'httpx2', 'lightkube'):\n"
        "    sys.modules[extra] = None\n"
        "from sinks import registry\n"
        "print(*(registry.load(kind).KIND for kind in registry.BUILT_IN))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split() == list(BUILT_IN)


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    """The error about an unknown kind lists the kinds that are installed."""
    with pytest.raises(UnknownKindError, match=r"'mqttt'.*eventhub, file, kubernetes, mqtt, "):
        registry.load("mqttt")


def test_an_entry_point_is_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of an installed package is in the list and can be loaded."""
    installed(tmp_path, monkeypatch, memory="sinks.testing:MemorySink")
    assert "memory" in registry.kinds()
    assert registry.load("memory").__name__ == "MemorySink"


def test_built_in_kinds_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package cannot replace a built-in sink."""
    installed(tmp_path, monkeypatch, file="sinks.testing:MemorySink")
    assert registry.load("file").__name__ == "FileSink"
    assert registry.kinds().count("file") == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module_of_anyone:X", "cannot be loaded"),
        ("sinks.testing:NoSuchSink", "cannot be loaded"),
        ("sinks.testing:SAMPLE_TIME", "not a subclass"),
        ("sinks.testing:SinkContract", "not a subclass"),
        ("sink_that_fails:Sink", "division by zero"),
    ],
)
def test_a_broken_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    """The error about a sink that cannot be loaded has its name and target, whatever its module
    raises.
    """
    (tmp_path / "sink_that_fails.py").write_text("1 / 0", encoding="utf-8")
    installed(tmp_path, monkeypatch, theirs=target)
    with pytest.raises(BrokenKindError, match=f"'theirs' .*{said}"):
        registry.load("theirs")
