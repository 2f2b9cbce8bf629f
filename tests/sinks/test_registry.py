"""The list of the kinds of sinks."""

import subprocess
import sys
from pathlib import Path

import pytest

from sinks import registry
from sinks.registry import BUILT_IN, INTERNAL, BrokenKindError, UnknownKindError

ROOT = Path(__file__).parents[2]


def installed(directory: Path, patch: pytest.MonkeyPatch, **points: str) -> None:
    """Make the files of an installed package with these entry points."""
    info = directory / "someones_sinks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-sinks\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n" + "".join(lines))
    patch.syspath_prepend(directory)


@pytest.mark.parametrize("kind", [*BUILT_IN, *INTERNAL])
def test_each_kind_of_ours_passes_the_suite(kind: str) -> None:
    """A test of each kind inherits the suite for sinks."""
    places = (ROOT / "tests" / "sinks" / "kinds").glob("test_*.py")
    tests = [path.read_text(encoding="utf-8") for path in places]
    wanted = f"from sinks.kinds.{kind}"
    kept = [text for text in tests if wanted in text and "SinkContract)" in text]
    assert kept, f"tests/sinks/kinds/test_{kind}.py has no subclass of SinkContract"


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
    ("target", "expected"),
    [
        ("no_such_module_of_anyone:X", "cannot be loaded"),
        ("sinks.testing:NoSuchSink", "cannot be loaded"),
        ("sinks.testing:SAMPLE_TIME", "not a subclass"),
        ("sinks.testing:SinkContract", "not a subclass"),
        ("sink_that_fails:Sink", "division by zero"),
    ],
)
def test_a_broken_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, expected: str
) -> None:
    """The error about a sink that cannot be loaded has its name and target, whatever its module
    raises.
    """
    (tmp_path / "sink_that_fails.py").write_text("1 / 0", encoding="utf-8")
    installed(tmp_path, monkeypatch, theirs=target)
    with pytest.raises(BrokenKindError, match=f"'theirs' .*{expected}"):
        registry.load("theirs")
