"""Every snippet of README and docs/ is run or says why not; every page says for whom it is."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from dotenv import dotenv_values
from support.ground.doc_page import ROOT, Block, blocks

from bridge.config.load import load as load_bridge
from console.config.load import load as load_console
from sinks.shared.errors import ConfigurationError
from sinks.shared.errors import ConfigurationError as ConsoleConfigurationError

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
SETTINGS = ("/etc/seb/seb.env", "/etc/seb/console.env")


def is_settings(block: Block) -> bool:
    """Whether it is a file of settings, which this file itself has the programs read."""
    return block.path in SETTINGS


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_is_run_or_says_why_not(page: str) -> None:
    """A block in a language has a mark; what is only to be looked at has no language."""
    loose = [
        f"{each.heading}: {each.text[:60]}"
        for each in blocks(page)
        if each.language and not each.mark and not is_settings(each)
    ]
    assert loose == []


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_has_a_reason(page: str) -> None:
    """More than a word, so that a reader can judge it."""
    reasons = [each.mark for each in blocks(page) if each.mark.startswith("not run:")]
    assert [each for each in reasons if len(each.split()) < 4] == []


@pytest.mark.parametrize("page", PAGES)
def test_who_runs_a_snippet_knows_the_page(page: str) -> None:
    """The test that a mark names is there, and reads this page."""
    for mark in {each.mark for each in blocks(page) if each.mark.startswith("run by ")}:
        path = ROOT / mark.removeprefix("run by ")
        sources = [path, *path.parent.glob("conftest.py")]
        text = "".join(each.read_text(encoding="utf-8") for each in sources)
        name = Path(page).name
        known = name in text or (name.startswith("console") and "console*.md" in text)
        assert known or path.name == "test_snippets.py", f"{path} does not read {page}"


@pytest.mark.parametrize("page", [each for each in PAGES if not each.endswith("README.md")])
def test_a_page_says_for_whom_it_is(page: str) -> None:
    """Below its title, in a sentence, and what the reader has at its end."""
    _, _, first, *_ = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert first.startswith("For "), first


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_have_names_that_exist(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each file of settings, which may be a part of one, and names files that are not here."""
    monkeypatch.chdir(tmp_path)
    for block in filter(is_settings, blocks(page)):
        given = dotenv_values(stream=StringIO(block.text), interpolate=False)
        load = load_console if block.path == SETTINGS[1] else load_bridge
        with suppress_unless_unknown():
            load(environ={name: value or "" for name, value in given.items()})


@contextmanager
def suppress_unless_unknown() -> Iterator[None]:
    """A part of a file of settings may be refused, but not for a name that does not exist."""
    try:
        yield
    except (ConfigurationError, ConsoleConfigurationError) as error:
        if "no such setting" in str(error) or "did you mean" in str(error):
            raise


def test_the_toml_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is TOML, and its names exist."""
    monkeypatch.chdir(tmp_path)
    for block in blocks("docs/reference.md", "toml"):
        assert tomllib.loads(block.text)
        (tmp_path / "seb.toml").write_text(block.text)
        with suppress_unless_unknown():
            load_bridge(environ={"SEB_CONFIG": "seb.toml"})


def test_the_charts_line_in_the_readme() -> None:
    """It renders."""
    if not shutil.which("helm"):
        pytest.skip("needs helm")
    (line,) = (each.text for each in blocks("README.md", "sh") if each.text.startswith("helm"))
    done = subprocess.run(line.split(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "kind: DaemonSet" in done.stdout
