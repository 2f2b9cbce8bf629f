"""Every page: its links lead somewhere, and the commands that it shows exist."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.cli import seb

ROOT = Path(__file__).parent.parent.parent
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


@cache
def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@every_page
def test_the_links_lead_somewhere(page: Path) -> None:
    """To a file, and to a heading of it."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for place in re.findall(r"\]\(([^)]+)\)", text):
        if re.match(r"https?:|mailto:", place):
            continue
        file, _, anchor = place.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), place
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), place


@every_page
def test_the_files_that_it_names_exist(page: Path) -> None:
    """A reader who follows a path of the project finds the file."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\b(?:bridge|console|docs|sinks|tests|wire)/[\w/]+\.py\b", text)
    assert [each for each in named if not (ROOT / each).exists()] == []


def test_the_files_that_the_project_sets_apart_exist() -> None:
    """An exception for a file that has gone would hide what takes its name."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ignores = found["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert [each for each in ignores if not any(ROOT.glob(each))] == []


@every_page
def test_the_commands_exist(page: Path) -> None:
    """Each `seb …` in code has a help text."""
    called = r"""(?:bin/|exec seb |sudo |^|`)seb ([a-z][a-z-]+(?: (?:list|test|env))?)"""
    found = re.findall(called, page.read_text(encoding="utf-8"), re.MULTILINE)
    for words in sorted(set(found)):
        result = CliRunner().invoke(seb, [*words.split(), "--help"])
        assert (words, result.exit_code) == (words, 0)
