"""docs/rollout.md and docs/networks.md: every file, link, command and placeholder is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.process.bridge import run_seb

ROOT = Path(__file__).parent.parent.parent
PAGES = (*(ROOT / "docs" / name for name in ("rollout.md", "networks.md")), *ROOT.glob("[RS]E*.md"))


def text_of(path: Path) -> str:
    """The text of a page."""
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> list[str]:
    """Its blocks of code."""
    return re.findall(r"^```[a-z]*\n(.*?)^```", text_of(path), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_each_placeholder_is_explained(page: Path) -> None:
    """What stands in angle brackets in a command stands in a sentence of the page as well."""
    text = text_of(page)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    used = {each for block in blocks(page) for each in re.findall(r"<[A-Z_]+>", block)}
    assert [each for each in sorted(used) if f"`{each}`" not in prose] == []


def test_every_file_has_its_place_in_the_page() -> None:
    """Nothing lies in deploy/ that the page does not lead to."""
    text = text_of(ROOT / "docs" / "rollout.md")
    named = ("ansible/roles/", "ansible/inventory.example.yml")
    for path in sorted((ROOT / "deploy").rglob("*")):
        name = path.relative_to(ROOT / "deploy").as_posix()
        if path.is_file() and not name.startswith(named[0]):
            assert name in text or path.name in text, name
    assert all(each in text or each.split("/")[1] in text for each in named)


def test_the_rule_of_the_page_is_valid(tmp_path: Path) -> None:
    """So are the settings of the first VM."""
    page = ROOT / "docs" / "rollout.md"
    (rule,) = re.findall(r"^SEB_APPROVAL__RULES=.*$", text_of(page), re.MULTILINE)
    (first,) = (each for each in blocks(page) if "sudo seb check" in each)
    lines = [rule, *re.findall(r"SEB_[A-Z_]+=[^'\n]+", first)]
    said = run_seb("config", "show", home=tmp_path, env=dict(x.split("=", 1) for x in lines))
    assert said.code == 0, said.err
    assert "own-reboots" in said.out
