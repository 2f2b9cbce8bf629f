"""The example of a sink in a package of its own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.ground.doc_page import blocks

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "seb-sink-email"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The example as an installer leaves it: the module, and the metadata of its project."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    (tmp_path / "seb_sink_email.py").write_bytes((EXAMPLE / "seb_sink_email.py").read_bytes())
    info = tmp_path / f"seb_sink_email-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, "utf-8")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points), "utf-8")
    return tmp_path


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the example is installed."""
    path = os.pathsep.join([str(site), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_found_through_its_entry_point(site: Path) -> None:
    """An installed sink is listed, and is loaded by its kind only."""
    program = """
import sys
from sinks import registry
listed = registry.kinds()
unloaded = "seb_sink_email" not in sys.modules
print("email" in listed, unloaded, registry.load("email").__name__)
"""
    done = python(site, "-c", program)
    assert (done.stdout, done.stderr) == ("True True EmailSink\n", "")


def test_it_passes_the_contract_with_its_own_tests(site: Path) -> None:
    """The example's own tests, which inherit the conformance suite, pass in an installation."""
    config = str(EXAMPLE / "pyproject.toml")
    done = python(
        site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", config, str(EXAMPLE / "tests")
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_shows_the_example_as_it_is() -> None:
    """Each line of code in docs/writing-a-sink.md is in the example, in the same order."""
    sources = ("seb_sink_email.py", "tests/test_email.py", "pyproject.toml")
    lines = [line for each in sources for line in (EXAMPLE / each).read_text("utf-8").splitlines()]
    for block in blocks("docs/writing-a-sink.md"):
        if block.language in ("python", "toml"):
            place = iter(lines)
            assert [line for line in block.text.splitlines() if line not in place] == []
