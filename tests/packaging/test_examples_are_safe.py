"""Examples that people paste: settings blocks that are read as they stand, and careful rules."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from dotenv import dotenv_values
from support.ground.doc_page import ROOT, Block, blocks

PAGES = sorted(
    each.relative_to(ROOT).as_posix()
    for each in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
)


def settings(page: str) -> list[Block]:
    """The blocks of a page that set variables of the bridge."""
    return [
        each
        for each in blocks(page)
        if re.search(r"^SEB_[A-Z0-9_]+=", each.text, re.MULTILINE) and each.language != "sh"
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_where_it_belongs(page: str) -> None:
    """Its first line is a comment with the name of the file; none is a mere shell block."""
    loose = [
        each.text
        for each in blocks(page)
        if each.language in ("", "sh") and re.match(r"SEB_\w+=[^\n]*\n(SEB_|$)", each.text)
    ]
    assert [each.text for each in settings(page) if each.path is None] + loose == []


@pytest.mark.parametrize("page", PAGES)
def test_comments_have_lines_of_their_own(page: str) -> None:
    """Neither systemd nor Docker takes a comment behind a value away."""
    lines = [line for each in settings(page) for line in each.text.splitlines()]
    assert [line for line in lines if re.match(r"\w+=.*\s#", line)] == []


def test_the_rules_of_the_readme(tmp_path: Path) -> None:
    """They approve reboots only, preparation comes first, and the text says what others cost."""
    (block,) = [each for each in settings("README.md") if "APPROVAL__RULES" in each.text]
    (tmp_path / "env").write_text(block.text)
    rules = json.loads(dotenv_values(tmp_path / "env")["SEB_APPROVAL__RULES"] or "")
    assert [each["name"] for each in rules] == ["drained", "own-reboots"]
    assert {tuple(each["event_type"]) for each in rules} == {("Reboot",)}
    text = (ROOT / "README.md").read_text("utf-8")
    cost = text[text.index("what an approval costs") :][:600]
    assert all(name in cost for name in ("Redeploy", "Preempt", "Terminate"))


def test_python_is_called_python3() -> None:
    """Debian and Ubuntu have no command `python`."""
    called = [
        line
        for page in PAGES
        for each in blocks(page, "sh")
        for line in each.text.splitlines()
        if re.match(r"(sudo )?python ", line)
    ]
    assert called == []


def test_toml_blocks_are_toml() -> None:
    """Each one is read."""
    for page in PAGES:
        for each in blocks(page, "toml"):
            tomllib.loads(each.text)
