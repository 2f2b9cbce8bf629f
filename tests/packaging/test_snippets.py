"""Every snippet of every page is run or says why not; every page of docs/ says for whom it is."""

from __future__ import annotations

import re
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

PLACES = ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/**/*.md", "helm/**/*.md")
PAGES = sorted({path.relative_to(ROOT).as_posix() for each in PLACES for path in ROOT.glob(each)})
DOCS = [each for each in PAGES if each.startswith("docs/") and each.count("/") == 1]
SETTINGS = ("/etc/seb/seb.env", "/etc/seb/console.env")


def is_settings(block: Block) -> bool:
    """Whether it is a file of settings, which this file itself has the programs read."""
    return block.path in SETTINGS


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_is_run_or_says_why_not(page: str) -> None:
    """A block has a mark; what is only to be looked at says `text` in place of a language."""
    loose = [
        f"{each.heading}: {each.text[:60]}"
        for each in blocks(page)
        if each.language != "text" and not each.mark and not is_settings(each)
    ]
    assert loose == []


@pytest.mark.parametrize("page", PAGES)
def test_what_is_only_to_be_looked_at_is_no_command(page: str) -> None:
    """A line that begins with a program is a snippet, whatever its block says."""
    programs = re.compile(r"(?:\$ |# )?(?:sudo|seb|make|az|curl|sed|docker|kubectl|helm|pip)\s")
    texts = [each.text for each in blocks(page, "text")]
    lines = [line for text in texts for line in text.splitlines()]
    assert [line for line in lines if programs.match(line)] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_overlooked(page: str) -> None:
    """Each fence stands at the beginning of its line, where the other tests look for it."""
    fences = re.findall(
        r"^[ >]*(?:```|~~~).*$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES)
def test_what_is_said_to_be_run_is_run_by_make_ground(page: str) -> None:
    """It runs what is in tests/ground, and by their names the other tests of the pages it knows."""
    named = re.search(
        r"^PAGES = (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert named
    known = {
        path.relative_to(ROOT).as_posix() for each in named[1].split() for path in ROOT.glob(each)
    }
    assert page in known or not any(each.mark.startswith("run by ") for each in blocks(page))


@pytest.mark.parametrize("page", PAGES)
def test_no_command_is_left_out(page: str) -> None:
    """A ground that runs a page's commands sees at its end that it has taken each of them."""
    marks = {each.mark.removeprefix("run by ") for each in blocks(page, "sh")}
    for mark in sorted(each for each in marks if each.startswith("tests/ground/")):
        folder = (ROOT / mark).parent
        # The files of a folder share the page; the files of tests/ground itself do not.
        files = folder.glob("*.py") if folder.name != "ground" else [ROOT / mark]
        assert any(".left()" in each.read_text(encoding="utf-8") for each in files), mark


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


@pytest.mark.parametrize("page", [each for each in DOCS if not each.endswith("README.md")])
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
